"""Every storage format through every law."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowdsl.testing.formats import FORMAT_LAWS, FormatLaw
from tests.storage.formats import FORMATS


@pytest.mark.hypothesis
@pytest.mark.parametrize("law", FORMAT_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", FORMATS)
def test_format(name: str, law: FormatLaw, tmp_path: Path) -> None:
    law(FORMATS[name], tmp_path)
