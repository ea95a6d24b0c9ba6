"""Undo: the newest accept is reverted, validated and landed; what cannot be is refused, and nothing changes."""

from collections.abc import Iterator

import pytest

from tests.support.fleet import Fleet

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"


@pytest.fixture(scope="module")
def running() -> Iterator[Fleet]:
    fleet = Fleet("scripted")
    fleet.set_up("adam", config={"repo.validate": "test ! -e broken.txt"})
    fleet.up("--no-patrol")
    yield fleet
    fleet.close()


def land(fleet: Fleet, name: str, text: str) -> None:
    prompt = f"Write {name}\n@sh printf '{text}' > {name}; git add {name}; {COMMIT} 'Write {name}'"
    fleet.llmc("start", "--worker", "adam", "--prompt", prompt)
    fleet.wait("adam", "needs_review")
    fleet.llmc("accept", "adam")


def test_undo_reverts_the_newest_accept_and_then_the_one_before(running: Fleet) -> None:
    """Break that fails it: do not emit `undone`; the second undo would revert the same commit again."""
    land(running, "one.txt", "1\\n")
    land(running, "two.txt", "2\\n")
    running.llmc("undo", code=2)
    done = running.llmc("undo", "--yes", "--json").json
    assert done["prompt"].startswith("Write two.txt")
    assert not (running.source / "two.txt").exists()
    assert (running.source / "one.txt").exists()
    running.llmc("undo", "--yes")
    assert not (running.source / "one.txt").exists()
    assert running.log()[:4] == [
        'Revert "Write one.txt"',
        'Revert "Write two.txt"',
        "Write two.txt",
        "Write one.txt",
    ]
    assert running.git("status", "--porcelain") == ""
    assert "nothing was accepted" in running.llmc("undo", "--yes", code=4).err


def test_later_changes_of_the_same_lines_are_named_and_refused(running: Fleet) -> None:
    land(running, "same.txt", "1\\n")
    running.commit("same.txt", "by a person\n", "A person's change")
    refused = running.llmc("undo", "--yes", code=3)
    assert "same.txt" in refused.err
    assert running.log()[0] == "A person's change"


def test_a_dirty_source_is_refused(running: Fleet) -> None:
    land(running, "dirty.txt", "1\\n")
    (running.source / "README.md").write_text("half a thought\n")
    assert "uncommitted changes" in running.llmc("undo", "--yes", code=3).err
    running.git("checkout", "-q", "README.md")
    running.llmc("undo", "--yes")


def test_a_revert_that_fails_validation_does_not_land(running: Fleet) -> None:
    """Break that fails it: land the revert without validating it."""
    running.commit("broken.txt", "x\n", "Breaks the check")
    prompt = f"@sh git rm -q broken.txt; {COMMIT} 'Mend the check'"
    running.llmc("start", "--worker", "adam", "--prompt", prompt)
    running.wait("adam", "needs_review")
    running.llmc("accept", "adam")
    assert "validation failed" in running.llmc("undo", "--yes", code=1).err
    assert running.log()[0] == "Mend the check"
    assert not (running.root / ".llmc/undo-checkout").exists()
