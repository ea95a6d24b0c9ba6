"""Conflict kinds, markers and regions, from what real git leaves in real rebases."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.repo.rules import conflicts
from llmc.repo.rules.conflicts import Conflict, Kind
from tests.support.repos import Repo

TEXT = "".join(f"line {number}\n" for number in range(1, 31))
Change = Callable[[Repo], None]


def edit(name: str, text: str) -> Change:
    return lambda repo: repo.write(name, text) and None


def move(old: str, new: str) -> Change:
    return lambda repo: repo.git("mv", old, new) and None


def remove(name: str) -> Change:
    return lambda repo: repo.git("rm", "-q", name) and None


def conflict(path: Path, main: Change, worker: Change) -> Repo:
    """A repository in a stopped rebase: `main` did one thing, the worker another."""
    repo = Repo(path / "repo")
    repo.commit("a.txt", TEXT)
    for branch, change in (("worker", worker), ("main", main)):
        repo.git("checkout", "-q", *(["-b"] if branch == "worker" else []), branch)
        change(repo)
        repo.git("add", "-A")
        repo.git("commit", "-q", "-m", f"By {branch}")
    repo.git("checkout", "-q", "worker")
    repo.git("rebase", "main", check=False)
    return repo


def found(repo: Repo) -> tuple[Conflict, ...]:
    def renames(tip: str) -> dict[str, str]:
        listing = repo.git(
            "diff", "--name-status", "-M", "-z", "--diff-filter=R", "--merge-base", tip, other[tip]
        )
        return conflicts.parse_renames(listing)

    other = {"HEAD": "REBASE_HEAD", "REBASE_HEAD": "HEAD"}
    # `diff --merge-base A B` compares their merge base with B
    stages = conflicts.parse_stages(repo.git("ls-files", "-u", "-z"))
    return conflicts.classify(stages, renames("REBASE_HEAD"), renames("HEAD"))


@pytest.mark.req("2-019", "2-020")
def test_content(tmp_path: Path) -> None:
    """Breaks when stages are read only as a set of paths."""
    repo = conflict(
        tmp_path,
        edit("a.txt", TEXT.replace("line 9\n", "main 9\n")),
        edit("a.txt", TEXT.replace("line 9\n", "mine 9\n")),
    )
    assert found(repo) == (Conflict("a.txt", Kind.CONTENT, "a.txt", "a.txt"),)
    text = (repo.path / "a.txt").read_text()
    assert conflicts.marker_count(text) == 1
    (region,) = conflicts.regions(text)
    lines = region.splitlines()
    assert lines[:5] == [f"line {n}" for n in range(4, 9)]
    assert lines[-5:] == [f"line {n}" for n in range(10, 15)]
    assert lines[5].startswith("<<<<<<< ")
    assert lines.index("main 9") < lines.index("=======") < lines.index("mine 9")


def test_modified_by_the_worker_and_deleted_in_main(tmp_path: Path) -> None:
    repo = conflict(tmp_path, remove("a.txt"), edit("a.txt", "mine\n"))
    (only,) = found(repo)
    assert only == Conflict("a.txt", Kind.MODIFY_DELETE, None, "a.txt")
    assert conflicts.describe(only, 0, "main") == "modified by you, deleted in main"


def test_deleted_by_the_worker_and_modified_in_main(tmp_path: Path) -> None:
    """Breaks when stage 2 is taken as the worker's: the prompt would say the opposite of what happened."""
    repo = conflict(tmp_path, edit("a.txt", "main\n"), remove("a.txt"))
    (only,) = found(repo)
    assert only == Conflict("a.txt", Kind.MODIFY_DELETE, "a.txt", None)
    assert conflicts.describe(only, 0, "main") == "deleted by you, modified in main"


def test_added_by_both(tmp_path: Path) -> None:
    repo = conflict(tmp_path, edit("new.txt", "main\n"), edit("new.txt", "mine\n"))
    assert found(repo) == (Conflict("new.txt", Kind.ADD_ADD, "new.txt", "new.txt"),)


def test_renamed_by_both(tmp_path: Path) -> None:
    """Git lists three paths with one stage each. Breaks when each is reported as its own conflict."""
    repo = conflict(tmp_path, move("a.txt", "main.txt"), move("a.txt", "mine.txt"))
    assert len(conflicts.parse_stages(repo.git("ls-files", "-u", "-z"))) == 3
    assert found(repo) == (Conflict("a.txt", Kind.RENAME_RENAME, "main.txt", "mine.txt"),)


def test_renamed_by_one_and_deleted_by_the_other(tmp_path: Path) -> None:
    repo = conflict(tmp_path, remove("a.txt"), move("a.txt", "mine.txt"))
    assert found(repo) == (Conflict("mine.txt", Kind.MODIFY_DELETE, None, "mine.txt"),)


def test_a_path_with_blanks_tabs_and_newlines(tmp_path: Path) -> None:
    """Breaks when the listing is split at blanks or newlines."""
    name = "a b\tc\nd.txt"
    repo = conflict(tmp_path, edit(name, "main\n"), edit(name, "mine\n"))
    assert [item.path for item in found(repo)] == [name]


def test_the_labels_of_the_stages(tmp_path: Path) -> None:
    """Stage 2 is the default branch, stage 3 the worker's own, in a rebase: the reverse of a merge."""
    repo = conflict(tmp_path, edit("a.txt", "main\n"), edit("a.txt", "mine\n"))
    assert repo.git("show", f":{conflicts.MAIN}:a.txt") == "main" == repo.git("show", "HEAD:a.txt")
    assert repo.git("show", f":{conflicts.WORKER}:a.txt") == "mine" == repo.git("show", "REBASE_HEAD:a.txt")


def block(number: int) -> list[str]:
    return ["<<<<<<< HEAD", f"main {number}", "=======", f"mine {number}", ">>>>>>> c0ffee (Mine)"]


@pytest.mark.req("2-019", "2-020")
def test_regions_that_touch_are_shown_once_and_completely() -> None:
    """Breaks with document 002's own loop: it skips a region inside another's context."""
    text = "\n".join([*block(1), "between", *block(2)])
    assert conflicts.marker_count(text) == 2
    assert conflicts.regions(text) == [text]


@pytest.mark.req("2-020")
def test_a_heading_underlined_with_equal_signs_is_no_marker() -> None:
    assert conflicts.marker_count("Title\n=======\n<<<<<<<< eight\n <<<<<<< indented\n") == 0
    assert conflicts.regions("Title\n=======\n") == []


def test_a_region_without_an_end_goes_to_the_end() -> None:
    assert conflicts.regions("<<<<<<< HEAD\nx\ny") == ["<<<<<<< HEAD\nx\ny"]


def test_the_size_is_bounded() -> None:
    """Breaks when a region of a generated file is sent whole, or when the space is not counted down."""
    long = "\n".join(["<<<<<<< HEAD", *["x" * 1000] * 5000, ">>>>>>> c0ffee"])
    shown, left = conflicts.bounded([long] * 20)
    each = conflicts.MAX_REGION_LINES + 1  # with the line that says what is left out
    assert len(shown) == conflicts.MAX_LINES // each
    assert left == conflicts.MAX_LINES - len(shown) * each
    assert {len(text.split("\n")) for text in shown} == {each}
    assert max(len(line) for text in shown for line in text.split("\n")) == conflicts.MAX_LINE_CHARS
    assert f"({5002 - conflicts.MAX_REGION_LINES} more lines)" in shown[0]
    assert conflicts.bounded(["a\nb", "c"], room=2) == (["a\nb"], 0)


@given(st.text())
def test_what_is_shown_is_fit_for_a_terminal(text: str) -> None:
    """Breaks when an escape sequence in a conflicted file reaches the prompt: it would be refused there."""
    from llmc.sessions.rules.prompt_text import normalise

    normalise("x " + conflicts.printable(text + "\x1b[31m\x00\udc80"))


@pytest.mark.req("2-018", "2-020")
def test_summary() -> None:
    """Breaks when files without regions are not counted."""
    assert conflicts.summary([2, 0, 1]) == "3 files with 3 conflict regions"
