"""from_files: the names that match, against what was put into a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import InvalidFlow, SourceError, StateMismatch


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


class TestMatching:
    @given(st.sets(st.text("ab1.-", min_size=1, max_size=4).filter(lambda s: s.strip("."))))
    def test_is_sorted(self, tmp_path_factory: pytest.TempPathFactory, names: set[str]) -> None:
        folder = tmp_path_factory.mktemp("names")
        make(folder, *(f"{name}.png" for name in names), "other.txt")
        seen = sorted(f"{folder}/{name}.png" for name in names if not name.startswith("."))
        if seen:
            assert fl.from_files(f"{folder}/*.png").collect() == seen
        else:
            with pytest.raises(SourceError):
                fl.from_files(f"{folder}/*.png")

    def test_is_of_files_only(self, folder: Path) -> None:
        make(folder, "a", "b/c")
        assert fl.from_files("*").collect() == ["a"]

    def test_goes_down_any_number_of_folders(self, folder: Path) -> None:
        make(folder, "x.png", "a/y.png", "a/b/c/z.png", "a/b/z.txt")
        assert fl.from_files("**/*.png").collect() == ["a/b/c/z.png", "a/y.png", "x.png"]
        assert fl.from_files("a/**/*.png").collect() == ["a/b/c/z.png", "a/y.png"]
        assert fl.from_files("*/*.png").collect() == ["a/y.png"]

    def test_of_several_patterns_gives_each_file_once(self, folder: Path) -> None:
        make(folder, "a.png", "b.png", "c.jpg")
        patterns: list[str | Path] = ["c.*", "*.png", Path("a.png"), folder / "b.png", "./c.jpg"]
        assert fl.from_files(patterns).collect() == ["a.png", "b.png", "c.jpg"]
        assert fl.from_files(("b.png", "a.png")).collect() == ["a.png", "b.png"]

    def test_of_the_name_of_a_file_is_that_file(self, folder: Path) -> None:
        make(folder, "a[1].png", "a1.png", ".hidden")
        assert fl.from_files("a[1].png").collect() == ["a[1].png"]
        assert fl.from_files("a[1]*").collect() == ["a1.png"]
        assert fl.from_files(".hidden").collect() == [".hidden"]
        assert fl.from_files(folder / "a1.png").collect() == [str(folder / "a1.png")]

    def test_is_done_once(self, folder: Path) -> None:
        make(folder, "a", "b")
        flow = fl.from_files("*")
        (folder / "a").unlink()
        make(folder, "c")
        assert flow.collect() == list(flow.epoch(1)) == ["a", "b"]


class TestPromises:
    def test_length_effects_and_spec(self, folder: Path) -> None:
        make(folder, "a", "b", "c")
        flow = fl.from_files("*")
        assert len(flow) == 3
        assert flow.effects == frozenset()
        assert str(flow.spec) == "str"
        assert repr(flow) == "from_files('*', 3 files)"
        assert repr(fl.from_files(["a", "b"])) == "from_files('a' and 1 more, 2 files)"
        assert flow.node.origin(0, 1) == "row 1 of from_files('*', 3 files)"

    @pytest.mark.parametrize("procs", [0, 2])
    def test_names_go_to_workers(self, folder: Path, procs: int) -> None:
        make(folder, "a", "b", "c")
        flow = fl.from_files("*").shuffle().map(os.path.abspath).prefetch(procs=procs)
        assert sorted(flow.collect()) == [str(folder / name) for name in "abc"]

    def test_a_state_is_of_the_files_that_matched(self, folder: Path) -> None:
        make(folder, "a", "b")
        state = iter(fl.from_files("*")).state_dict()
        assert list(fl.from_files("*").resume(state)) == ["a", "b"]
        (folder / "a").rename(folder / "c")
        with pytest.raises(StateMismatch, match="of another flow"):
            fl.from_files("*").resume(state)


class TestRefusals:
    @pytest.mark.parametrize(
        ("pattern", "there"),
        [
            ("*.png", "there is a folder '.'"),
            ("a.png", "there is a folder '.'"),
            ("a/*.png", "there is a folder 'a'"),
            ("a/**/*.png", "there is a folder 'a'"),
            ("b/c/*.png", "there is no folder 'b/c'"),
            ("b/*/c/*.png", "there is no folder 'b'"),
            ("[b]/c.png", "there is a folder '.'"),
            ("/b/c.png", "there is no folder '/b'"),
            ("/*.png", "there is a folder '/'"),
            ("a", "there is a folder '.'"),
            ("a/", "there is a folder 'a'"),
            ("", "there is a folder '.'"),
        ],
    )
    def test_no_file(self, folder: Path, pattern: str, there: str) -> None:
        make(folder, "a/x.txt", "file")
        with pytest.raises(SourceError) as caught:
            fl.from_files(pattern)
        assert str(caught.value) == f"from_files: no file matches {pattern!r}; {there}"

    def test_no_file_for_one_of_several(self, folder: Path) -> None:
        make(folder, "a.png")
        with pytest.raises(SourceError, match=r"no file matches '\*.jpg'"):
            fl.from_files(["*.png", "*.jpg"])

    @pytest.mark.parametrize("pattern", [3, None, [], ["a", 3], {"a"}, b"a", [b"a"], [["a"]]])
    def test_what_is_no_pattern(self, pattern: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_files(pattern)
        assert str(caught.value) == (
            f"from_files: pattern must be a str or path, or a sequence of at least one, got "
            f"{pattern!r}"
        )
