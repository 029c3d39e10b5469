"""from_files: the matching names, compared with the files created in a folder."""

from __future__ import annotations

import os
import re
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
    def test_braces_stand_for_numbers_and_texts(self, folder: Path) -> None:
        make(folder, "s-08.tar", "s-09.tar", "s-10.tar", "s-11.tar", "a.png", "b.png", "c.png")
        numbered = fl.from_files("s-{08..10}.tar")
        assert list(numbered) == ["s-08.tar", "s-09.tar", "s-10.tar"]
        assert list(fl.from_files("{b,a}.p*")) == ["a.png", "b.png"]
        assert numbered.node.title == "from_files('s-{08..10}.tar', 3 files)"

    def test_a_name_of_braces_without_a_file_is_an_error(self, folder: Path) -> None:
        make(folder, "s-0.tar")
        with pytest.raises(SourceError, match=re.escape("no file matches 's-1.tar'")):
            fl.from_files("s-{0..1}.tar")

    def test_braces_of_too_many_names_are_refused(self) -> None:
        with pytest.raises(InvalidFlow, match=r"from_files: the braces in .* stand for"):
            fl.from_files("s-{0..2000000}.tar")

    def test_a_file_whose_name_has_braces_is_that_file(self, folder: Path) -> None:
        make(folder, "{a,b}.png", "a.png")
        assert list(fl.from_files("{a,b}.png")) == ["{a,b}.png"]

    @given(st.sets(st.text("ab1.-", min_size=1, max_size=4).filter(lambda s: s.strip("."))))
    def test_file_names_are_sorted(
        self, tmp_path_factory: pytest.TempPathFactory, names: set[str]
    ) -> None:
        folder = tmp_path_factory.mktemp("names")
        make(folder, *(f"{name}.png" for name in names), "other.txt")
        seen = sorted(f"{folder}/{name}.png" for name in names if not name.startswith("."))
        if seen:
            assert fl.from_files(f"{folder}/*.png").collect() == seen
        else:
            with pytest.raises(SourceError):
                fl.from_files(f"{folder}/*.png")

    def test_folders_do_not_match(self, folder: Path) -> None:
        make(folder, "a", "b/c")
        assert fl.from_files("*").collect() == ["a"]

    def test_a_folder_is_an_error_that_has_a_pattern(self, folder: Path) -> None:
        make(folder, "a/b.png", "c/d/e.png")
        for name, pattern in (("a", "a/*"), ("c", "c/*/*")):
            with pytest.raises(SourceError, match=re.escape(pattern)):
                fl.from_files(name)

    def test_double_star_matches_any_number_of_folders(self, folder: Path) -> None:
        make(folder, "x.png", "a/y.png", "a/b/c/z.png", "a/b/z.txt")
        assert fl.from_files("**/*.png").collect() == ["a/b/c/z.png", "a/y.png", "x.png"]
        assert fl.from_files("a/**/*.png").collect() == ["a/b/c/z.png", "a/y.png"]
        assert fl.from_files("*/*.png").collect() == ["a/y.png"]

    def test_several_patterns_yield_each_file_once(self, folder: Path) -> None:
        make(folder, "a.png", "b.png", "c.jpg")
        patterns: list[str | Path] = ["c.*", "*.png", Path("a.png"), folder / "b.png", "./c.jpg"]
        assert fl.from_files(patterns).collect() == ["a.png", "b.png", "c.jpg"]
        assert fl.from_files(("b.png", "a.png")).collect() == ["a.png", "b.png"]

    def test_an_existing_file_name_matches_itself(self, folder: Path) -> None:
        make(folder, "a[1].png", "a1.png", ".hidden")
        assert fl.from_files("a[1].png").collect() == ["a[1].png"]
        assert fl.from_files("a[1]*").collect() == ["a1.png"]
        assert fl.from_files(".hidden").collect() == [".hidden"]
        assert fl.from_files(folder / "a1.png").collect() == [str(folder / "a1.png")]

    def test_existing_folders_before_a_pattern_are_literal(self, folder: Path) -> None:
        make(folder, "run[1]/a", "run1/b", "run2/[x]/c", "run2/x/d")
        assert fl.from_files("run[1]/*").collect() == ["run[1]/a"]
        assert fl.from_files(folder / "run[1]" / "?").collect() == [str(folder / "run[1]" / "a")]
        assert fl.from_files("run[12]/*").collect() == ["run1/b"]
        assert fl.from_files("run2/[x]/*").collect() == ["run2/[x]/c"]
        (folder / "run[1]" / "a").unlink()
        with pytest.raises(
            SourceError, match=r"no file matches 'run\[1\]/\*'; the folder 'run\[1\]' ex"
        ):
            fl.from_files("run[1]/*")

    def test_a_tilde_is_the_home_folder(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.setenv("USERPROFILE", str(folder))
        make(folder, "a.png", "b~.png", "~.png")
        assert fl.from_files("~/a.*").collect() == [str(folder / "a.png")]
        assert fl.from_files(Path("~/a.png")).collect() == [str(folder / "a.png")]
        assert fl.from_files(["~.png", "b~*"]).collect() == ["b~.png", "~.png"]

    def test_files_are_matched_once(self, folder: Path) -> None:
        make(folder, "a", "b")
        flow = fl.from_files("*")
        (folder / "a").unlink()
        make(folder, "c")
        assert flow.collect() == list(flow.epoch(1)) == ["a", "b"]


class TestPromises:
    def test_from_files_has_length_and_spec(self, folder: Path) -> None:
        make(folder, "a", "b", "c")
        flow = fl.from_files("*")
        assert len(flow) == 3
        assert flow.effects == frozenset()
        assert str(flow.spec) == "str"
        assert repr(flow) == "from_files('*', 3 files)"
        assert repr(fl.from_files(["a", "b"])) == "from_files('a' and 1 more, 2 files)"
        assert flow.node.origin(0, 1) == "row 1 of from_files('*', 3 files), 'b'"

    @pytest.mark.parametrize("procs", [0, 2])
    def test_file_names_are_sent_to_workers(self, folder: Path, procs: int) -> None:
        make(folder, "a", "b", "c")
        flow = fl.from_files("*").shuffle().map(os.path.abspath).prefetch(procs=procs)
        assert sorted(flow.collect()) == [str(folder / name) for name in "abc"]

    def test_a_state_belongs_to_the_matched_files(self, folder: Path) -> None:
        make(folder, "a", "b")
        state = iter(fl.from_files("*")).state_dict()
        assert list(fl.from_files("*").resume(state)) == ["a", "b"]
        (folder / "a").rename(folder / "c")
        with pytest.raises(StateMismatch, match="of another flow"):
            fl.from_files("*").resume(state)

    def test_a_state_is_resumed_in_another_folder(self, folder: Path) -> None:
        make(folder, "a/x/1", "a/y/1", "b/a/x/1", "b/a/y/1", "c/a/x/1", "c/a/z/1", "c/a/1")
        state = iter(fl.from_files("a/*/*")).state_dict()
        assert list(fl.from_files(folder / "b/a/**/?").resume(state)) == [
            str(folder / "b/a/x/1"),
            str(folder / "b/a/y/1"),
        ]
        for pattern in ("c/a/*/*", ["c/a/x/1", "c/a/1"]):
            with pytest.raises(StateMismatch, match="of another flow"):
                fl.from_files(pattern).resume(state)

    def test_a_state_is_not_resumed_in_a_folder_of_another_name(self, folder: Path) -> None:
        make(folder, "train/0", "train/1", "val/0", "val/1")
        state = iter(fl.from_files("train/*")).state_dict()
        with pytest.raises(StateMismatch, match="of another flow"):
            fl.from_files("val/*").resume(state)


class TestRefusals:
    @pytest.mark.parametrize(
        ("pattern", "there"),
        [
            ("*.png", "the folder '.' exists"),
            ("a.png", "the folder '.' exists"),
            ("a/*.png", "the folder 'a' exists"),
            ("a/**/*.png", "the folder 'a' exists"),
            ("b/c/*.png", "the folder 'b/c' does not exist"),
            ("b/*/c/*.png", "the folder 'b' does not exist"),
            ("[b]/c.png", "the folder '.' exists"),
            ("/b/c.png", "the folder '/b' does not exist"),
            ("/*.png", "the folder '/' exists"),
            ("c", "the folder '.' exists"),
            ("", "the folder '.' exists"),
        ],
    )
    def test_a_pattern_without_files_is_refused(
        self, folder: Path, pattern: str, there: str
    ) -> None:
        make(folder, "a/x.txt", "file")
        with pytest.raises(SourceError) as caught:
            fl.from_files(pattern)
        assert str(caught.value) == f"from_files: no file matches {pattern!r}; {there}"

    def test_each_of_several_patterns_must_match(self, folder: Path) -> None:
        make(folder, "a.png")
        with pytest.raises(SourceError, match=r"no file matches '\*.jpg'"):
            fl.from_files(["*.png", "*.jpg"])

    @pytest.mark.parametrize("pattern", [3, None, [], ["a", 3], {"a"}, b"a", [b"a"], [["a"]]])
    def test_invalid_patterns_are_refused(self, pattern: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_files(pattern)
        assert str(caught.value) == (
            f"from_files: pattern must be a str or path, or a sequence of at least one, got "
            f"{pattern!r}"
        )
