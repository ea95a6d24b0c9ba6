"""How drills are judged: they must report when something is lost, late, or fixed by the wrong party."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from llmc.rehearsal import drill, sample
from llmc.rehearsal.drills.losses import losses
from llmc.rehearsal.drills.model import Drill, DrillFailed, Kind, Report, Terms
from llmc.rehearsal.drills.run import run_here
from llmc.rehearsal.drills.scratch import Scratch
from llmc.rehearsal.drills.table import DRILLS
from llmc.repo import git

WHO = ("-c", "user.name=Drill", "-c", "user.email=drill@example.com")


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    """A source and a root that is a clone of it, without a fleet."""
    made = Scratch(tmp_path, Terms())
    made.marks.mkdir()
    sample.create(made.source)
    git.git(tmp_path, "clone", "--quiet", "--no-checkout", str(made.source), str(made.root))
    (made.root / "logs").mkdir()
    return made


def commit(place: Path, number: int) -> str:
    (place / f"file-{number}").write_text(f"{number}\n")
    git.git(place, "add", "--all")
    git.git(place, *WHO, "commit", "--quiet", "-m", f"Task {number}")
    return git.git(place, "rev-parse", "HEAD").stdout.strip()


def note(scratch: Scratch, sha: str) -> None:
    with (scratch.marks / "made").open("a") as file:
        file.write(f"{sha}\n")


def completed(scratch: Scratch, number: int) -> None:
    ledger = scratch.root / ".llmc/tasks.jsonl"
    ledger.parent.mkdir(exist_ok=True)
    with ledger.open("a") as file:
        file.write(
            json.dumps({"action": "completed", "task": str(number), "worker": "w", "claim": "c"}) + "\n"
        )


def test_all_is_every_drill_but_the_night() -> None:
    """Break: run only those of the failure tables."""
    assert {one.name for one in drill._chosen((), True)} == DRILLS.keys() - {"night"}


def test_a_commit_that_nothing_leads_to(scratch: Scratch) -> None:
    """Break: check whether the object exists, not whether a ref reaches it."""
    work = scratch.root / ".worktrees" / "auto-1"
    git.git(scratch.root, "worktree", "add", "--quiet", "-b", "auto-1", str(work), "origin/main")
    sha = commit(work, 1)
    note(scratch, sha)
    assert losses(scratch) == []
    git.git(work, "reset", "--quiet", "--hard", "origin/main")
    assert losses(scratch) == [f"no ref contains {sha[:10]} (Task 1)"]
    git.git(scratch.root, "update-ref", "refs/llmc/trash/x", sha)
    assert losses(scratch) == []
    note(scratch, "0" * 40)
    assert losses(scratch) == ["commit 0000000000 is lost"]


def test_words_that_nobody_has(scratch: Scratch) -> None:
    """Break: check only the worktrees, or assume that what was written exists."""
    scratch.half(1, "true")
    ((words, written),) = scratch.precious.items()
    assert losses(scratch) == [], "it was never written"
    written.touch()
    assert losses(scratch) == [f"uncommitted work is lost: {words!r}"]
    kept = scratch.root / ".worktrees" / "auto-1"
    kept.mkdir(parents=True)
    (kept / "half-1").write_text(words)
    assert losses(scratch) == []
    (kept / "half-1").unlink()
    blob = git.git(scratch.root, "hash-object", "-w", "--stdin", input=words.encode()).stdout.strip()
    tree = git.git(scratch.root, "mktree", input=f"100644 blob {blob}\thalf-1\n".encode()).stdout.strip()
    pinned = git.git(scratch.root, *WHO, "commit-tree", "-m", "kept", tree).stdout.strip()
    git.git(scratch.root, "update-ref", "refs/llmc/trash/y", pinned)
    assert losses(scratch) == []


def test_what_landed_twice_and_what_did_not(scratch: Scratch) -> None:
    """Break: compare sets of tasks."""
    commit(scratch.source, 1)
    completed(scratch, 1)
    assert losses(scratch) == []
    git.git(scratch.source, *WHO, "commit", "--quiet", "--allow-empty", "-m", "Task 1")
    completed(scratch, 2)
    assert losses(scratch) == ["task 1 landed 2 times", "task 2 is completed but did not land"]


DRILL = replace(DRILLS["agent-killed"], bound_s=5.0)


def judged(tmp_path: Path, drill: Drill, *, noticed_s: float | None, remediated: list[str]) -> Report:
    """A drill that only records what it would have seen."""

    def pretend(scratch: Scratch) -> None:
        (scratch.root / "logs").mkdir(parents=True)
        scratch.breaks_now()
        if noticed_s is not None:
            scratch.detected_unix = scratch.fault_unix + noticed_s
        rows = [row for outcome in remediated for row in ({}, {"outcome": outcome})]
        lines = [{"action": "overseer_remediation", "ts": scratch.fault_unix + 1, **row} for row in rows]
        (scratch.root / "logs/events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
        scratch.is_supervised = lambda: True  # type: ignore[method-assign]
        scratch.end = lambda: None  # type: ignore[method-assign]

    return run_here(replace(drill, run=pretend), tmp_path, Terms())


def test_late_and_not_noticed_at_all(tmp_path: Path) -> None:
    """Break: treat what was not noticed as early."""
    assert judged(tmp_path / "a", DRILL, noticed_s=4.9, remediated=[]).outcome == "passed"
    late = judged(tmp_path / "b", DRILL, noticed_s=5.2, remediated=[])
    assert late.problems == ["detected after 5.2 s; the limit is 5 s"]
    assert judged(tmp_path / "c", DRILL, noticed_s=None, remediated=[]).problems == [
        "the fault was not detected"
    ]


@pytest.mark.parametrize(
    ("kind", "remediated", "is_fine"),
    [
        (Kind.AUTO, [], True),
        (Kind.AUTO, ["completed"], False),
        (Kind.AI, ["completed"], True),
        (Kind.AI, [], False),
        (Kind.AI, ["timeout"], False),
        (Kind.AI, ["completed", "completed"], False),
    ],
)
def test_who_made_it_good(tmp_path: Path, kind: Kind, remediated: list[str], is_fine: bool) -> None:
    """Break: trust the drill's own claim."""
    report = judged(tmp_path, replace(DRILL, kind=kind), noticed_s=1.0, remediated=remediated)
    assert (report.outcome == "passed") is is_fine, report


def test_a_drill_that_breaks_is_a_failure(tmp_path: Path) -> None:
    """Break: let an exception end the others."""

    def breaks(scratch: Scratch) -> None:
        scratch.end = lambda: None  # type: ignore[method-assign]
        raise DrillFailed("timed out after 60 s; expected: it happens")

    report = run_here(replace(DRILL, run=breaks), tmp_path, Terms())
    assert (report.outcome, report.problems) == ("failed", ["timed out after 60 s; expected: it happens"])
