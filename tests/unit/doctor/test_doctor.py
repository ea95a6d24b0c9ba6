"""The rules of `llmc doctor`: what was observed, and what follows. No root, no git, no tmux."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from llmc.base.names import ClaudeSessionId, PromptId, SessionName, TaskId, TaskKey, WorkerName
from llmc.config.load import check_text
from llmc.doctor.check import GROUPS, Check, Finding, WorkerCheck, summary
from llmc.doctor.checks.clone import Branch, Setting
from llmc.doctor.checks.file_access import Mode
from llmc.doctor.programs import parse_version
from llmc.doctor.registry import CHECKS, diagnose, not_seen, notes, of_one
from llmc.doctor.rules.canary_verdict import Verdict
from llmc.doctor.rules.facts import (
    DaemonFacts,
    Facts,
    PaneState,
    Program,
    Session,
    StateFacts,
    StateFile,
    Stray,
    Tree,
    WorkerFacts,
    contained,
)
from llmc.doctor.rules.new_record import (
    Found,
    Rebase,
    assigned,
    is_over,
    keep_marks,
    owned,
    prompt_of_task,
    rebuilt,
    unknown,
)
from llmc.doctor.rules.records import LOST_PROMPT, record_fixes, task_in
from llmc.records.books import Claim
from llmc.records.task import Task, TaskStatus
from llmc.records.transitions import apply, problems
from llmc.records.worker import AcceptJournal, Assignment, Delivery, Outcome, Status, WorkerRecord
from llmc.repo.git_locks import STALE_LOCK_S, GitLock
from llmc.sessions.rules.decide import PERSONS_PROMPT, GitFacts
from tests.support.records import worker

NOW = 1_000_000.0
JOURNAL = AcceptJournal(step="land", started_unix=1.0, tip="tip")
RUNS = [status for status in Status if status not in (Status.OFFLINE, Status.ERROR)]


def one(record: WorkerRecord, **about: Any) -> WorkerFacts:
    """A worker without problems, except as given."""
    runs = record.status not in (Status.OFFLINE, Status.ERROR)
    good = {
        "place": "/r/.worktrees/w1",
        "pane": PaneState.ALIVE if runs else PaneState.NONE,
        "tree": Tree(branch="llmc/w1", head="c0ffee", tip="c0ffee"),
    }
    return WorkerFacts(record=record, now=NOW, **{**good, **about})


def tree(**about: Any) -> Tree:
    return Tree(**{"branch": "llmc/w1", "head": "c0ffee", "tip": "c0ffee", **about})


def busy_record(status: Status, **fields: Any) -> WorkerRecord:
    return worker(status, **{"current_prompt": "a task", **fields})


def kinds(found: list[Finding]) -> list[str]:
    return [finding.kind for finding in found]


def found_in(record: WorkerRecord, *, daemon_runs: bool = False, **about: Any) -> list[Finding]:
    return worker_findings(one(record, daemon_runs=daemon_runs, **about))


def worker_findings(worker: WorkerFacts) -> list[Finding]:
    return [found for check in CHECKS if isinstance(check, WorkerCheck) for found in of_one(check, worker)]


def whole(*workers: WorkerFacts, **about: Any) -> list[Finding]:
    """What is known about a root: its shared facts by name, what a check saw for itself by its kind."""
    shared = {name: about.pop(name) for name in Facts.__struct_fields__ if name in about}
    return diagnose(Facts(now=NOW, workers=workers, seen=about, **shared))


@pytest.mark.parametrize("status", Status)
def test_a_worker_in_good_order_has_no_finding(status: Status) -> None:
    """Break: report a finding for any status as such (except error)."""
    record = busy_record(status)
    about = {"tree": tree(rebasing=True, branch="", dirty=("x",))} if status is Status.REBASING else {}
    expected = ["worker_error"] if status is Status.ERROR else []
    assert kinds(found_in(record, **about)) == expected


def test_every_check_can_be_told_apart_and_fixes_what_it_calls_fixable() -> None:
    """Break: add two checks of one kind, or one of a group that no report shows."""
    kinds_of = [check.kind for check in CHECKS]
    assert len(set(kinds_of)) == len(kinds_of)
    assert [check.group for check in CHECKS] == sorted((check.group for check in CHECKS), key=GROUPS.index)
    assert {check.group for check in CHECKS} == set(GROUPS)
    needs = {need for check in CHECKS if isinstance(check, Check) for need in check.needs}
    assert needs <= {"git", "tmux", "clone", "config", "state"}


@pytest.mark.parametrize("status", RUNS)
@pytest.mark.parametrize(
    ("pane", "kind"), [(PaneState.NONE, "session_missing"), (PaneState.DEAD, "session_dead")]
)
def test_a_worker_whose_session_is_gone(status: Status, pane: PaneState, kind: str) -> None:
    """Break: check only `working`."""
    clean = tree(rebasing=status is Status.REBASING)
    (finding,) = found_in(busy_record(status), pane=pane, tree=clean)
    assert (finding.kind, finding.repairable) == (kind, True)


@pytest.mark.parametrize("status", Status)
def test_nothing_is_concluded_from_a_tmux_that_does_not_answer(status: Status) -> None:
    """Break: treat UNKNOWN as NONE; or repair an error worker whose session is unknown."""
    found = found_in(
        busy_record(status), pane=PaneState.UNKNOWN, tree=tree(rebasing=status is Status.REBASING)
    )
    assert not [finding for finding in found if finding.repairable]
    assert "session_missing" not in kinds(found)


def test_an_agent_that_nobody_knows() -> None:
    """Break: leave out the instance; every start would be a finding until its first hook."""
    assert kinds(found_in(worker(Status.OFFLINE, instance=""), pane=PaneState.ALIVE)) == ["session_unknown"]
    failed = worker(Status.OFFLINE, error_reason="exited: not as root", cause="config")
    assert kinds(found_in(failed)) == ["start_failed"], "an agent that does not start is a problem"
    assert found_in(worker(Status.OFFLINE, instance="i1"), pane=PaneState.ALIVE) == []
    assert found_in(worker(Status.OFFLINE), pane=PaneState.DEAD) == [], "that is how a crash is preserved"


@pytest.mark.parametrize(
    "reason",
    [{"record": {"held": True}}, {"attached": True}, {"record": {"accept": JOURNAL}}],
    ids=["held", "attached", "accept"],
)
@pytest.mark.parametrize(
    "about",
    [
        {"status": Status.ERROR},
        {"status": Status.NEEDS_REVIEW, "tree": tree(rebasing=True)},
        {"status": Status.NEEDS_REVIEW, "tree": Tree(exists=False)},
        {"status": Status.NEEDS_REVIEW, "tree": Tree(problem=".git is missing", foreign=True)},
        {"status": Status.WORKING, "tree": tree(lock_age_s=9999.0)},
    ],
    ids=["error", "rebase", "missing", "broken", "lock"],
)
def test_hands_off(reason: dict[str, Any], about: dict[str, Any]) -> None:
    """Break: leave held, attached or an accept out of hands_off."""
    record = busy_record(about["status"], **reason.get("record", {}))
    found = found_in(
        record,
        daemon_runs=True,
        attached=reason.get("attached", False),
        **({"tree": about["tree"]} if "tree" in about else {}),
    )
    assert found, "it is still reported"
    # A dead lock may be the very thing that keeps the accept from finishing.
    ends_the_accept = "accept" in reason.get("record", {}) and "lock" in found[-1].kind
    assert bool([finding for finding in found if finding.repairable]) == ends_the_accept


def test_a_worker_somebody_works_on_is_looked_at_in_part() -> None:
    """Break: check it while its lock is held; a reset in progress is a dirty idle worker for a moment."""
    facts = one(worker(Status.IDLE), tree=tree(dirty=("x",)), busy_with="pid 7 (llmc reset w1)")
    assert worker_findings(facts) == []
    assert "pid 7" in notes(Facts(now=NOW, workers=(facts,)))[0]


def test_error_workers_are_reset() -> None:
    (finding,) = found_in(worker(Status.ERROR, error_reason="logged out"))
    assert (finding.kind, finding.repairable) == ("worker_error", True)
    assert "logged out" in finding.text


def test_what_a_dead_process_left_open() -> None:
    """Break: report it while a daemon is running, which will resume it."""
    accepting = busy_record(Status.NEEDS_REVIEW, accept=JOURNAL)
    on_its_way = Delivery(prompt_id=PromptId("task-1"), outcome=Outcome.TYPED, at_unix=1.0)
    assert kinds(found_in(accepting)) == ["accept_stopped"]
    assert "llmc accept w1" in found_in(accepting)[0].fix
    assert kinds(found_in(worker(Status.IDLE, delivery=on_its_way))) == ["delivery_stopped"]
    for record in (accepting, worker(Status.IDLE, delivery=on_its_way)):
        assert found_in(record, daemon_runs=True) == []


@pytest.mark.parametrize(
    ("status", "seen_tree", "kind", "repairable"),
    [
        (Status.IDLE, Tree(exists=False), "worktree_missing", True),
        (Status.WORKING, Tree(exists=False), "worktree_missing", True),
        (Status.IDLE, Tree(problem="no", foreign=True), "worktree_broken", True),
        (Status.IDLE, Tree(problem="index file corrupt"), "worktree_broken", False),
        (Status.IDLE, tree(branch="main"), "worktree_off_branch", True),
        (Status.IDLE, tree(branch=""), "worktree_off_branch", True),
        (Status.NO_CHANGES, tree(branch=""), "worktree_off_branch", True),
        (Status.NEEDS_REVIEW, tree(branch="x"), "worktree_off_branch", False),
        (Status.IDLE, tree(dirty=("a",)), "worktree_dirty", True),
        (Status.IDLE, tree(rebasing=True, branch="", dirty=("a",)), "rebase", True),
        (Status.NEEDS_INPUT, tree(rebasing=True, branch=""), "rebase", True),
        (Status.NEEDS_REVIEW, tree(rebasing=True, branch=""), "rebase", True),
        (Status.OFFLINE, tree(rebasing=True, branch=""), "rebase", True),
        (Status.IDLE, tree(lock_age_s=STALE_LOCK_S), "index_lock", True),
        (Status.WORKING, tree(lock_age_s=STALE_LOCK_S), "index_lock", True),
    ],
)
def test_worktrees(status: Status, seen_tree: Tree, kind: str, repairable: bool) -> None:
    prompt = "" if status is Status.IDLE else "a task"
    (finding,) = found_in(worker(status, current_prompt=prompt), tree=seen_tree)
    assert (finding.kind, finding.repairable) == (kind, repairable)


@pytest.mark.parametrize(
    ("record", "seen_tree"),
    [
        (busy_record(Status.WORKING), tree(branch="mine", dirty=("a",))),
        (busy_record(Status.WORKING), tree(rebasing=True, branch="")),
        (busy_record(Status.REBASING), tree(rebasing=True, branch="")),
        (busy_record(Status.NEEDS_INPUT, reason="question"), tree(rebasing=True, branch="")),
        (busy_record(Status.NEEDS_REVIEW, pre_rebase_sha="x"), tree(rebasing=True, branch="")),
        (busy_record(Status.OFFLINE, pre_rebase_sha="x"), tree(rebasing=True, branch="")),
        (busy_record(Status.NEEDS_INPUT), tree(dirty=("a",))),
        (busy_record(Status.OFFLINE), tree(branch="mine", dirty=("a",))),
        (busy_record(Status.OFFLINE), tree(operation="merge")),
        (busy_record(Status.NEEDS_INPUT), tree(operation="merge")),
        (worker(Status.OFFLINE), tree(branch="", ahead=2)),
        (worker(Status.IDLE), tree(lock_age_s=STALE_LOCK_S - 1)),
        (worker(Status.IDLE), tree(lock_age_s=9999.0, lock_in_use=True)),
        (worker(Status.IDLE), None),
    ],
)
def test_what_is_a_workers_own_business(record: WorkerRecord, seen_tree: Tree | None) -> None:
    """Break: judge the worktree of a worker with a task like an idle one's; or report a lock in use."""
    assert found_in(record, tree=seen_tree) == []


@pytest.mark.parametrize("status", [Status.IDLE, Status.OFFLINE])
@pytest.mark.parametrize(
    ("seen_tree", "says"),
    [
        (tree(dirty=("a", "b", "c", "d")), "uncommitted changes: a, b, c and 1 more"),
        (tree(dirty=("a",), ahead=2), "uncommitted changes: a"),
        (tree(operation="merge"), "a merge is in progress"),
        (tree(operation="bisect", dirty=("a",)), "a bisect is in progress"),
    ],
)
def test_what_was_left_in_the_worktree_of_a_worker_without_a_task(
    status: Status, seen_tree: Tree, says: str
) -> None:
    """Break: check only where an agent is running, or only for files."""
    (finding,) = found_in(worker(status), tree=seen_tree)
    assert (finding.kind, finding.repairable) == ("worktree_dirty", True)
    assert says in finding.text


def test_the_age_of_a_lock_is_said() -> None:
    (finding,) = found_in(worker(Status.IDLE), tree=tree(lock_age_s=3 * 3600.0))
    assert "3 hours old" in finding.text


def test_hooks_matter_where_an_agent_runs() -> None:
    assert kinds(found_in(worker(Status.IDLE), settings_problem="gone")) == ["hooks"]
    assert found_in(worker(Status.OFFLINE), settings_problem="gone") == []


def fixed(facts: WorkerFacts) -> WorkerRecord:
    record = facts.record
    for fix in record_fixes(facts):
        record = replace(record, **fix.fields)
        record = apply(record, fix.change, NOW) if fix.change else record
    return record


@pytest.mark.parametrize(
    ("record", "seen_tree", "expected"),
    [
        (worker(Status.NEEDS_REVIEW, commit_sha=None), tree(ahead=1), {"commit_sha": "c0ffee"}),
        (worker(Status.NEEDS_REVIEW, commit_sha=None), tree(dirty=("a",)), {"commit_sha": "c0ffee"}),
        (worker(Status.NEEDS_REVIEW, commit_sha=None), tree(), {"status": Status.IDLE}),
        (worker(Status.NEEDS_REVIEW, commit_sha=None, held=True), tree(), {"commit_sha": "c0ffee"}),
        (worker(Status.NEEDS_REVIEW, commit_sha=None, accept=JOURNAL), tree(), {"commit_sha": "tip"}),
        (worker(Status.NEEDS_REVIEW, commit_sha=None), Tree(exists=False, tip="b"), {"commit_sha": "b"}),
        (worker(Status.NEEDS_REVIEW, commit_sha=None), None, {"status": Status.ERROR}),
        (worker(Status.IDLE, commit_sha="x"), tree(), {"commit_sha": None}),
        (worker(Status.ERROR, error_reason=""), tree(), {"error_reason": "not recorded"}),
        (worker(Status.IDLE, accept=JOURNAL), tree(), {"accept": None}),
        (worker(worktree_path="adam"), tree(), {"worktree_path": "/r/.worktrees/w1"}),
        (worker(Status.WORKING), tree(), {"current_prompt": LOST_PROMPT}),
        (busy_record(Status.WORKING, since_unix=NOW + 3600), tree(), {"since_unix": NOW}),
        (worker(created_at_unix=NOW + 3600), tree(), {"created_at_unix": NOW}),
        (worker(rebase_started_at_unix=NOW + 3600), tree(), {"rebase_started_at_unix": NOW}),
    ],
)
def test_records(record: WorkerRecord, seen_tree: Tree | None, expected: dict[str, Any]) -> None:
    """Break: leave out any of these fixes."""
    facts = one(record, tree=seen_tree)
    assert "record" in kinds(worker_findings(facts))
    after = fixed(facts)
    assert {name: getattr(after, name) for name in expected} == expected
    assert problems(after) == []
    assert record_fixes(one(after, tree=seen_tree)) == [], "once is enough"


def test_times_inside_a_record() -> None:
    later = NOW + 3600
    sent = Delivery(prompt_id=PromptId("task-1"), outcome=Outcome.ACKNOWLEDGED, at_unix=later)
    journal = AcceptJournal(step="land", started_unix=later, tip="t")
    facts = one(busy_record(Status.NEEDS_REVIEW, delivery=sent, accept=journal))
    after = fixed(facts)
    assert after.delivery is not None
    assert after.accept is not None
    assert (after.delivery.at_unix, after.accept.started_unix) == (NOW, NOW)
    assert after.delivery.prompt_id == "task-1"


def test_a_clock_that_is_a_little_ahead_is_no_problem() -> None:
    assert record_fixes(one(worker(since_unix=NOW + 30))) == []


def test_a_person_may_give_an_agent_something_to_do() -> None:
    """Break: treat every worker without a task as broken; a user's own turn would get a task it never had."""
    said = Delivery(prompt_id=PromptId("message-1"), outcome=Outcome.ACKNOWLEDGED, at_unix=1.0)
    assert record_fixes(one(worker(Status.WORKING, delivery=said))) == []
    assert record_fixes(one(worker(Status.WORKING, reason=PERSONS_PROMPT))) == []
    (fix,) = record_fixes(one(worker(Status.WORKING), found_prompt="the task"))
    assert fix.fields == {"current_prompt": "the task"}


@given(
    st.sampled_from(Status),
    st.sampled_from([None, "c0ffee"]),
    st.sampled_from(["", "why"]),
    st.sampled_from([None, JOURNAL]),
    st.booleans(),
    st.sampled_from([None, tree(), tree(ahead=2), tree(dirty=("a",)), Tree(exists=False), Tree(problem="x")]),
    st.sampled_from([0.0, NOW + 1e6]),
)
def test_whatever_a_record_says_it_can_be_written_after_the_repair(
    status: Status,
    commit: str | None,
    why: str,
    journal: AcceptJournal | None,
    held: bool,
    seen_tree: Tree | None,
    since: float,
) -> None:
    """Break: leave one contradiction of transitions.problems() out of record_fixes()."""
    record = worker(status, commit_sha=commit, error_reason=why, accept=journal, held=held, since_unix=since)
    after = fixed(one(record, tree=seen_tree))
    assert problems(after) == []
    assert record_fixes(one(after, tree=seen_tree)) == []


GOOD = one(worker(Status.IDLE))
RUNNING = {"runs": True, "ready": True}
FAILED = Verdict(agent="claude", client="2.2.0", tmux="tmux 3.3a", at_unix=1.0, passed=False, reason="no")


@pytest.mark.parametrize(
    ("about", "kind", "repairable"),
    [
        ({"programs": (Program("git", problem="git is not installed"),)}, "program", False),
        ({"programs": (Program("tmux", "tmux 2.9", (3, 3)),)}, "program", False),
        ({"programs": (Program("claude", "1.0.9 (Claude Code)", (2, 1, 197)),)}, "program", False),
        ({"launcher": ("gone",)}, "launcher", True),
        ({"trust": ("not trusted",)}, "trust", False),
        ({"config_problems": ("config.toml:3: no",)}, "config", False),
        ({"configured": ("w1", "w2")}, "not_added", False),
        ({"state": StateFacts(misfiled=("the entry for w1 is stored under the name w2",))}, "state", False),
        ({"daemon": DaemonFacts(files=("daemon.json",))}, "daemon_crashed", True),
        ({"daemon": DaemonFacts(runs=True, age_s=600)}, "daemon_not_ready", False),
        ({"sessions": None, "tmux_problem": "busy"}, "tmux", False),
        ({"sessions": (Session("llmc-w1"), Session("llmc-x"))}, "session_without_worker", True),
        ({"sessions": (Session("llmc-x", attached=True),)}, "session_without_worker", False),
        ({"strays": (Stray("x"),)}, "worktree_stray", False),
        ({"worktree_pruned": ("/gone",)}, "worktree_pruned", True),
        ({"slot": ("/r/.llmc/slots/05",)}, "slot", True),
        ({"undo_stopped": ("a" * 40,)}, "undo_stopped", False),
        ({"clone_problem": "no"}, "clone", False),
        ({"setting": (Setting("gc.auto", "0", "1"), Setting("x", "1", "1"))}, "setting", True),
        ({"setting": (Setting("core.bare", None, "true"),)}, "setting", True),
        ({"branch": (Branch("llmc/w1", "w1"), Branch("llmc/x", "x"))}, "branch", True),
        ({"branch": (Branch("llmc/x", "x", ahead=None),)}, "branch", True),
        ({"source": (("gone", "do"),)}, "source", False),
        ({"permissions": (Mode("/r/logs", 0o750, closed=0o077),)}, "permissions", True),
        ({"disk": (1000,)}, "disk", False),
        ({"canary": FAILED}, "canary", False),
        ({"canary_left": ("/r/.llmc/canary/1",)}, "canary_left", True),
        ({"daemon": DaemonFacts(**RUNNING, other_pid=7)}, "daemon_other", False),
        ({"daemon": DaemonFacts(**RUNNING, socket_problem="gone")}, "daemon_socket", False),
        ({"daemon": DaemonFacts(**RUNNING, heartbeat_age_s=61)}, "daemon_stalled", False),
        ({"manual_intervention": (("/r/x.txt", "get a new key", "/r/logs/"),)}, "manual_intervention", False),
        ({"overseer_crashed": (("/r/.llmc/overseer.json", False),)}, "overseer_crashed", True),
        ({"overseer_crashed": (("/r/.llmc/overseer.json", True),)}, "overseer_crashed", False),
        ({"task_list": ("3.json: it is no JSON object",)}, "task_list", False),
        ({"goals": (("goals are stopped in safe mode", "look at it"),)}, "goals", False),
        ({"claim": (Claim("c1", TaskKey("plan", TaskId("3")), "auto-1"),)}, "claim", True),
        ({"unowned_task": ("3",)}, "unowned_task", True),
        ({"git_lock": (GitLock("/r/.git/packed-refs.lock", 301),)}, "git_lock", True),
        ({"git_lock": (GitLock("/s/.git/index.lock", 301, of_source=True),)}, "git_lock", False),
        ({"permissions": (Mode("/r/.llmc", 0o500, wanted=0o700),)}, "permissions", True),
        ({"permissions": (Mode("/r/.llmc", 0o700, owned=False, wanted=0o700),)}, "permissions", False),
        ({"trash": (2**40,)}, "trash", False),
    ],
)
def test_the_root(about: dict[str, Any], kind: str, repairable: bool) -> None:
    """Break: leave out the check, or report a correct state as a problem."""
    (finding,) = whole(GOOD, **about)
    assert (finding.kind, finding.repairable) == (kind, repairable)
    assert finding.fix, "every finding has a fix"


@pytest.mark.parametrize(
    "about",
    [
        {},
        {"programs": (Program("git", "git version 2.39.5", (2, 36)), Program("tmux", "tmux 3.3a", (3, 3)))},
        {"programs": (Program("tmux", "tmux next-3.6", (3, 3)), Program("claude", "odd", (2, 1)))},
        {"daemon": DaemonFacts(**RUNNING, age_s=1e6)},
        {"daemon": DaemonFacts(runs=True, age_s=3)},
        {"daemon": DaemonFacts(**RUNNING, heartbeat_age_s=20)},
        {"daemon": DaemonFacts(**RUNNING), "claim": (Claim("c1", TaskKey("plan", TaskId("3")), "auto-1"),)},
        {"git_lock": (GitLock("/r/.git/packed-refs.lock", 9), GitLock("/r/x.lock", 999, in_use=True))},
        {"canary": replace(FAILED, passed=True)},
        {"sessions": (Session("llmc-w1", attached=True),)},
        {"branch": (Branch("llmc/x", "x", ahead=3, checked_out=True),)},
        {"disk": (2**33,), "trash": (2**20,), "configured": ("w1",)},
    ],
)
def test_a_root_in_good_order(about: dict[str, Any]) -> None:
    assert whole(GOOD, **about) == []


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("adam", "run `llmc add adam` to adopt it, or move"),
        ("auto-3", "run `llmc doctor --rebuild` to adopt it, or move"),
        ("Foo", "move"),
        ("overseer", "move"),
    ],
)
def test_a_stray_worktree_is_adopted_by_a_command_that_works(name: str, advice: str) -> None:
    """Break: suggest `llmc add` for a name that it refuses."""
    (finding,) = whole(GOOD, strays=(Stray(name),))
    assert finding.fix == f"{advice} it out of .worktrees"


@pytest.mark.parametrize("kind", [StateFile.MISSING, StateFile.BROKEN, StateFile.NEWER])
def test_without_a_state_nothing_is_called_an_orphan(kind: StateFile) -> None:
    """Break: treat "no workers known" as "no workers": --repair would remove all sessions and branches."""
    found = whole(
        state=StateFacts(kind, "bad"),
        sessions=(Session("llmc-w1"),),
        branch=(Branch("llmc/w1", "w1"),),
        strays=(Stray("w1"),),
        worktree_pruned=("/gone",),
        configured=("w1",),
    )
    assert kinds(found) == ["state"]
    assert ("--rebuild" in found[0].fix) is (kind is not StateFile.NEWER)
    assert "workers" in not_seen(Facts(now=NOW, state=StateFacts(kind, "bad")))


def test_a_state_that_lost_its_workers_is_no_reason_to_end_their_sessions() -> None:
    """Break: trust an overwritten state: --repair would remove all sessions and branches."""
    there: dict[str, Any] = {
        "sessions": (Session("llmc-w1"),),
        "branch": (Branch("llmc/w1", "w1"),),
        "strays": (Stray("w1"), Stray("notes", is_worktree=False)),
    }
    (found,) = whole(**there, remembered=("w1",), state=StateFacts(backup_has_workers=True))
    assert (found.kind, found.repairable) == ("state", False)
    assert "worktrees exist for w1" in found.text
    assert "state.json.bak" in found.fix
    assert "--rebuild" in found.fix
    assert "sessions" in not_seen(Facts(now=NOW, remembered=("w1",), strays=there["strays"]))
    # None of it was ever a worker: as before.
    assert "worktree_stray" in kinds(whole(**there, remembered=("w2", "notes")))
    assert "worktree_stray" in kinds(whole(GOOD, **there, remembered=("w1",)))


def test_a_claim_that_its_worker_is_at_is_no_problem() -> None:
    """Break: free a task that continues with the next `llmc up --auto`."""
    at = Assignment(task_id=TaskId("3"), claim="c1", since_unix=1.0)
    found = whole(
        one(worker(Status.OFFLINE, assignment=at)), claim=(Claim("c1", TaskKey("plan", TaskId("3")), "w1"),)
    )
    assert found == []


def test_a_source_with_changes_is_said_and_no_problem() -> None:
    facts = Facts(now=NOW, workers=(GOOD,), source_dirty=("a", "b", "c", "d"))
    assert diagnose(facts) == []
    assert notes(facts) == [
        "the source repository has uncommitted changes, which block `llmc accept`: a, b, c, ..."
    ]


THREE = TaskKey("list", TaskId("3"))
CLAIM = Claim("c1", THREE, "w1")


@pytest.mark.parametrize(
    ("claim", "tasks", "task_id"),
    [
        (
            CLAIM,
            [Task(TaskId("3"), "Do", "", TaskStatus.IN_PROGRESS, metadata={"llmc": {"claim": "c1"}})],
            "3",
        ),
        (CLAIM, [], "3"),  # the client removed its file
        (
            CLAIM,
            [Task(TaskId("3"), "Do", "", TaskStatus.IN_PROGRESS, metadata={"llmc": {"claim": "c2"}})],
            None,
        ),
        (None, [], None),
    ],
)
def test_a_worker_gets_its_task_back(claim: Claim | None, tasks: list[Task], task_id: str | None) -> None:
    """Break: give it a task whose file has another worker's claim."""
    record = assigned(worker(Status.IDLE), claim, {TaskKey("list", task.id): task for task in tasks}, NOW)
    assert (record.assignment.task_id if record.assignment else None) == task_id


@pytest.mark.parametrize(
    ("prompt", "owner", "found"),
    [("Do it\n\nnow", "w1", True), ("Something else", "w1", False), ("Do it", "w2", False)],
)
def test_a_claim_that_only_the_task_knows(prompt: str, owner: str, found: bool) -> None:
    """Break: trust the owner's name alone: workers of two roots on one list have the same names."""
    ours = {"llmc": {"claim": "c1"}}
    task = Task(TaskId("3"), "Do it", "", TaskStatus.IN_PROGRESS, owner=owner, metadata=ours)
    assert (owned(worker(Status.IDLE, current_prompt=prompt), {THREE: task}) == CLAIM) is found


def test_a_good_backup_is_named() -> None:
    broken = StateFacts(StateFile.BROKEN, "bad", backup_good=True)
    assert "state.json.bak" in whole(state=broken)[0].fix


def test_a_missing_program_is_said_once() -> None:
    """Break: also report that tmux did not answer."""
    missing = (
        Program("tmux", problem="tmux is not installed"),
        Program("git", problem="git is not installed"),
    )
    found = whole(programs=missing, sessions=None, tmux_problem="not installed")
    assert kinds(found) == ["program", "program"]
    assert set(not_seen(Facts(now=NOW, programs=missing))) == {"sessions", "worktrees", "git", "source"}


def test_the_summary() -> None:
    assert summary([]) == "no problems"
    found = whole(GOOD, permissions=(Mode("a", 0o777, closed=0o077),), source=(("x", "y"),))
    assert summary(found) == "2 problems, 1 fixable with --repair"


@pytest.mark.parametrize(
    ("text", "version"),
    [("git version 2.39.5", (2, 39, 5)), ("tmux 3.3a", (3, 3)), ("none", ()), ("tmux next-3.6", (3, 6))],
)
def test_versions(text: str, version: tuple[int, ...]) -> None:
    assert parse_version(text) == version


GIT = GitFacts(head="c0ffee", ahead=0, dirty=False, rebasing=False)


def found_worker(**about: Any) -> Found:
    running = {"alive": True, "instance": "i1", "git": GIT}
    names = (WorkerName("w1"), "/r/.worktrees/w1", SessionName("llmc-w1"), 1.0)
    return Found(*names, **{**running, **about})


def git_facts(**about: Any) -> GitFacts:
    return GitFacts(**{"head": "c0ffee", "ahead": 0, "dirty": False, "rebasing": False, **about})


@pytest.mark.parametrize(
    ("about", "status", "reason"),
    [
        ({}, Status.IDLE, "ready"),
        ({"alive": False}, Status.OFFLINE, "rebuilt"),
        ({"alive": False, "git": git_facts(ahead=1), "prompt": "p"}, Status.OFFLINE, "rebuilt"),
        ({"instance": ""}, Status.OFFLINE, "rebuilt"),
        ({"prompt": "p"}, Status.NEEDS_INPUT, "restarted"),
        ({"git": git_facts(ahead=2)}, Status.NEEDS_REVIEW, "commits found"),
        ({"git": git_facts(dirty=True)}, Status.NEEDS_INPUT, "stopped_dirty"),
        ({"git": git_facts(rebasing=True)}, Status.REBASING, "rebase in progress"),
        ({"git": None}, Status.NEEDS_INPUT, "git failed"),
        ({"busy": True}, Status.WORKING, "its turn continues"),
        ({"busy": True, "git": git_facts(ahead=2)}, Status.WORKING, "its turn continues"),
        ({"asks": True, "prompt": "p"}, Status.NEEDS_INPUT, "question"),
    ],
)
def test_a_status_from_facts(about: dict[str, Any], status: Status, reason: str) -> None:
    """Break: treat a busy agent, or one with work, as idle: the next task would clear it away."""
    record = rebuilt(found_worker(**about), NOW)
    assert (record.status, record.reason) == (status, reason)
    assert problems(record) == []
    assert record_fixes(one(record)) == [], "a rebuilt record needs no repair"
    if about.get("prompt"):
        assert record.current_prompt == "p"


def test_a_rebase_of_llmc_goes_on() -> None:
    """Break: forget pre_rebase_sha; the agent would never be told about its conflicts."""
    rebase = Rebase("before", "base", ("a.txt",))
    at_rest = rebuilt(found_worker(git=git_facts(rebasing=True), rebase=rebase), NOW)
    assert (at_rest.pre_rebase_sha, at_rest.rebase_base, at_rest.conflicted_files) == (
        "before",
        "base",
        ("a.txt",),
    )
    assert at_rest.conflict_prompt_due
    at_it = rebuilt(found_worker(git=git_facts(rebasing=True), rebase=rebase, busy=True), NOW)
    assert (at_it.status, at_it.conflict_prompt_due) == (Status.REBASING, False)
    own = rebuilt(found_worker(git=git_facts(rebasing=True)), NOW)
    assert not own.conflict_prompt_due, "the agent's own rebase is its own business"


def test_an_offline_worker_keeps_its_conversation() -> None:
    session = ClaudeSessionId("s1")
    record = rebuilt(
        found_worker(alive=False, claude_session_id=session, transcript_path="/t", prompt="p"), NOW
    )
    assert (record.claude_session_id, record.transcript_path, record.instance) == (session, "/t", "")


#: what a rebuilt record does not have, on purpose: nothing outside the old state shows it
FORGOTTEN = {
    # accepts, prompts and questions in progress end
    *(
        "accept",
        "delivery",
        "report",
        "asked",
        "self_review",
        "announced_tasks",
        "unread_hooks",
        "applied_events",
        "removal_ref",
    ),
    # the next review starts over
    *("seen", "reviewed_sha", "reviewed_unix", "reviewed_patch", "uncommitted"),
    *("resolution_attempts", "validate_rebase", "validation_due", "validation_output", "rebase_due"),
    # the latest failure, and what patrol looks for again
    *("error_reason", "cause", "failed_sha", "crash_count", "last_crash_unix", "person", "refused_hosts"),
    "stopped_after",
    *("commits_seen_unix", "background_since_unix"),
    # the subject is that of the prompt, the model the configured one; marks identify the pane; the log has the usage
    *("current_subject", "model", "pane_id", "metered"),
}


def test_a_rebuilt_record_forgets_no_field() -> None:
    """Break: add a field to the record, or remove one from Found, and forget it here."""
    rebase = Rebase("before", "base", ("a.txt",))
    whole = {
        "agent": "claude",
        "config_dir": "/c",
        "claude_session_id": ClaudeSessionId("s1"),
        "transcript_path": "/t",
        "prompt": "p",
        "task_prompt": "task-1",
        "contained": True,
    }
    at_work = rebuilt(found_worker(**whole, git=git_facts(rebasing=True), rebase=rebase), NOW)
    done = rebuilt(found_worker(**whole, git=git_facts(ahead=1)), NOW)
    old = replace(at_work, held=True, held_since_unix=5.0, taken_back=("c0ffee",))
    kept = keep_marks(assigned(at_work, CLAIM, {}, NOW), old)
    empty = {one.name: one.default for one in fields(WorkerRecord)}
    remembered = {
        name
        for name, default in empty.items()
        if any(getattr(record, name) != default for record in (at_work, done, kept))
    }
    assert remembered & FORGOTTEN == set()
    assert empty.keys() - remembered - FORGOTTEN == {"auto"}, "which follows from the name"
    assert not rebuilt(found_worker(**whole, alive=False), NOW).contained, "only of a running agent"


def test_what_is_not_known_is_said() -> None:
    assert unknown(found_worker()) == []
    assert unknown(found_worker(prompt="p", git=git_facts(ahead=1))) == []
    assert "task is unknown" in unknown(found_worker(git=git_facts(ahead=1)))[0]
    assert "was not launched by llmc" in unknown(found_worker(instance=""))[0]
    assert "git" in unknown(found_worker(git=None))[0]


def event(action: str, worker: str = "w1", **fields: Any) -> dict[str, Any]:
    return {"action": action, "worker": worker, **fields}


def test_the_prompt_that_began_the_task() -> None:
    """Comments are kept under it. Break: rebuild only the text of the task: the comments disappear."""

    def sent(prompt_id: str, worker: str = "w1") -> dict[str, Any]:
        return {"action": "prompt_pending", "worker": worker, "prompt_id": prompt_id}

    def event(action: str) -> dict[str, Any]:
        return {"action": action, "worker": "w1"}

    first, more = sent("task-1"), [sent("message-3"), sent("task-9", "w2"), event("accepted")]
    assert prompt_of_task([first, *more], "w1", "") == "task-1", "as in a state that was not lost"
    assert prompt_of_task([first, sent("task-2"), *more], "w1", "task-1") == "task-2", "it was not typed yet"
    assert prompt_of_task([], "w1", "task-1") == "task-1", "the log is lost, too"
    for another in ("worker_added", "work_restored"):
        assert prompt_of_task([first, event(another)], "w1", "task-1") == ""
    assert prompt_of_task([{**first, "prompt_id": 1}], "w1", "") == ""
    assert rebuilt(found_worker(task_prompt="task-1"), NOW).task_prompt == "task-1"


def test_a_task_that_is_over_is_not_given_back() -> None:
    """Break: ignore the log; each worker would get its finished task back."""
    begun = event("prompt_pending", prompt_id="task-1")
    assert not is_over([begun], "w1", "task-1")
    assert is_over([begun, event("accepted")], "w1", "task-1")
    assert is_over([begun, event("worker_reset")], "w1", "task-1")
    assert not is_over([begun, event("accepted", "w2")], "w1", "task-1")
    assert not is_over([event("accepted"), begun], "w1", "task-1")
    assert not is_over([], "w1", "task-1")


def test_the_newest_task_of_a_conversation() -> None:
    sent = ["[llmc task-a1]\nfirst", "[llmc task-b2]\nsecond", "[llmc message-c3]\nword"]
    assert task_in(sent) == ("task-b2", sent[1])
    assert task_in(["by hand"]) == ("", "")


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ("", "agents and checks"),
        ('defaults.sandbox = "off"', "off"),
        ('sandbox.checks = "off"', "agents"),
        ('defaults.sandbox = "off"\nsandbox.checks = "auto"', "checks"),
        ('workers.adam.sandbox = "off"', "agents (except adam) and checks"),
        ('defaults.sandbox = "off"\nworkers.adam.sandbox = "on"', "adam"),
        (
            'defaults.sandbox = "off"\nsandbox.checks = "on"\nworkers.a.sandbox = "on"\nworkers.b.sandbox = "on"',
            "a, b and checks",
        ),
    ],
)
def test_what_is_contained_is_said_in_words(settings: str, shown: str) -> None:
    config, problems = check_text(f'repo.source = "/src"\n{settings}\n', "config.toml", Path("/r"))
    assert config is not None, problems
    assert contained(config) == shown
