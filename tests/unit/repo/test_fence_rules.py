"""The outcome of a push: from what the remote has now, not from messages."""

import pytest

from llmc.records.landing_ledger import Entry
from llmc.repo.rules.fenced_push import (
    Declined,
    Landed,
    NotFastForward,
    Outcome,
    Remote,
    Said,
    Seen,
    Stale,
    Unknown,
    answer,
    earlier_commits,
    is_own_value,
    newest_standing,
    outcome_of,
)

SEEN = Seen("b", "f")
REFUSED = Said(ok=False, refused={"refs/heads/main": "hook declined"}, text="no")
UNSENT = Said(ok=False, unsent=True)
SILENT = Said(ok=False, text="timed out")


@pytest.mark.parametrize(
    ("said", "now", "on_branch", "outcome"),
    [
        (Said(ok=True), None, False, Landed()),
        (SILENT, Seen("c", "g"), True, Landed()),
        (REFUSED, Seen("c", "g"), True, Landed()),  # an earlier push of the same commit
        (SILENT, None, False, Unknown("timed out")),
        (REFUSED, None, False, Unknown("no")),
        (SILENT, SEEN, False, Unknown("timed out")),  # it may still be on its way
        (REFUSED, Seen("x", "g"), False, NotFastForward()),
        (UNSENT, Seen("x", "f"), False, NotFastForward()),
        (SILENT, Seen("x", "g"), False, NotFastForward()),  # made on an old tip, it can never land
        (REFUSED, Seen("b", "g"), False, Stale()),
        (UNSENT, Seen("b", "g"), False, Stale()),
        (SILENT, Seen("b", "g"), False, Stale()),
        (UNSENT, SEEN, False, NotFastForward()),
        (REFUSED, SEEN, False, Declined("no")),
    ],
)
def test_an_outcome(said: Said, now: Seen | None, on_branch: bool, outcome: Outcome) -> None:
    """Break: any line of `outcome_of`."""
    assert outcome_of(said, SEEN, now, on_branch=on_branch) == outcome


def test_what_git_prints() -> None:
    rows = [
        "To ssh://host/repo.git",
        "!\tabc:refs/heads/main\t[remote rejected] (pre-receive hook declined)",
        "!\tdef:refs/llmc/fence\t[remote rejected] (atomic push failure)",
        "Done",
    ]
    said = answer(False, "\n".join(rows), "remote: error: closed (today)        \nremote: \nerror: failed\n")
    assert said.refused == {
        "refs/heads/main": "pre-receive hook declined",
        "refs/llmc/fence": "atomic push failure",
    }
    assert said.text == "error: closed (today) (atomic push failure; pre-receive hook declined)"
    assert not said.unsent
    assert answer(False, "!\tabc:refs/heads/main\t[rejected] (non-fast-forward)\nDone\n", "error").unsent
    assert answer(False, "", "fatal: unable to connect\n") == Said(ok=False, text="fatal: unable to connect")


def test_names() -> None:
    custom, branch = Remote("r", "main"), Remote("r", "main", fence_ref="llmc-fence")
    assert (custom.fence, custom.work, custom.probe) == (
        "refs/llmc/fence",
        "refs/llmc/work",
        "refs/llmc/fence-probe",
    )
    assert (branch.fence, branch.work) == ("refs/heads/llmc-fence", "refs/heads/llmc-fence-work")


@pytest.mark.parametrize(
    ("branch", "fence", "is_fine"),
    [
        ("main", "refs/llmc/fence", True),
        ("main", "llmc-fence", True),
        ("main", "main-fence", True),
        ("llmc-fence-worker", "llmc-fence", True),
        ("main", "main", False),
        ("main", "refs/heads/main", False),
        ("main", "main/fence", False),
        ("a/b", "a", False),
        ("llmc-fence-work", "llmc-fence", False),
        ("llmc-fence-work/x", "llmc-fence", False),
        ("llmc-fence-probe-1", "llmc-fence", False),
        ("main", "refs/llmc", False),
        ("main", "refs/llmc/work", False),
        ("main", "refs/llmc/work/x", False),
    ],
)
def test_refs_that_cannot_exist_beside_each_other(branch: str, fence: str, is_fine: bool) -> None:
    """Break: compare the names only whole; or leave the refs out that llmc makes beside the fence."""
    assert (Remote("r", branch, fence_ref=fence).problem == "") is is_fine


def test_which_commits_are_a_fences() -> None:
    """Break: look only at the message; somebody's work may have any message."""
    head = "tree e\nauthor a\ncommitter c"
    message = f"llmc fence {'0a' * 16}\n"
    assert is_own_value(f"{head}\n\n{message}", "e")
    assert not is_own_value(f"{head}\n\n{message}", "f"), "it has files"
    assert not is_own_value(f"tree e\nparent p\nauthor a\n\n{message}", "e"), "it has a history"
    assert not is_own_value(f"{head}\n\nllmc fence it\n", "e")
    assert not is_own_value(f"{head}\n\n{message}\nMore.\n", "e")


def entry(commit: str, token: int = 0, reverts: str = "") -> Entry:
    return Entry(commit, "w1", token=token, reverts=reverts)


def test_the_newest_landing_that_stands() -> None:
    """Break: change the order of the entries; use an entry that did not land; treat a revert as a landing."""
    branch = ["r2", "p", "c2", "c1"]
    entries = [entry("never"), entry("c2"), entry("r2", reverts="c2"), entry("c1")]
    assert newest_standing(branch, entries) == entry("c1")
    assert newest_standing(branch[1:], entries) == entry("c2")
    assert newest_standing(["p"], entries) is None


def test_what_earlier_holders_may_have_landed() -> None:
    """Break: forget that it may have been undone; its task would never be done again."""
    entries = [entry("a", 3), entry("b", 10), entry("r", reverts="a"), entry("mine", 11)]
    assert list(earlier_commits(entries, 11).items()) == [("b", []), ("a", ["r"])]
    assert earlier_commits(entries, 3) == {}
