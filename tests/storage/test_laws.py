"""Every storage format through every law."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowdsl.testing.formats import FORMAT_LAWS, FormatLaw, it_is_a_source
from tests.storage.formats import FORMATS


def _marks(name: str, law: FormatLaw) -> list[pytest.MarkDecorator]:
    """Our sources are checked by the laws of sources in ``tests/test_laws.py`` too."""
    return [pytest.mark.long] if law is it_is_a_source and name != "lmdb" else []


@pytest.mark.hypothesis
@pytest.mark.parametrize(
    ("name", "law"),
    [
        pytest.param(name, law, id=f"{name}-{law.__name__}", marks=_marks(name, law))
        for name in FORMATS
        for law in FORMAT_LAWS
    ],
)
def test_format(name: str, law: FormatLaw, tmp_path: Path) -> None:
    law(FORMATS[name], tmp_path)
