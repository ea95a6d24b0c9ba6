"""What is observed of a run and its session, on a real task list, ledger, transcript and repository."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as replaced

from llmc.goals.drive.liveness import Run, Signals
from llmc.goals.model import AssignmentStatus, NodeStatus
from llmc.goals.signals import Observer, _Log
from llmc.records.books import Claim
from llmc.records.event_log import EventLog
from tests.support import on_postgres
from tests.support.goal_workshop import LEAF, Clock, Workshop, fail, worker_at
from tests.support.repos import Repo

pytestmark = on_postgres.PLAYED


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock().set_up(monkeypatch)


@pytest.fixture
def shop(tmp_path: Path, clock: Clock) -> Workshop:
    """A leaf that was just sent; the root is a clone with a branch for each worker."""
    made = Workshop(tmp_path / "root")
    made.tick()
    clock.now += 1
    return made


def look(shop: Workshop) -> Signals:
    """By a fresh observer: earlier observations must not be needed."""
    one = shop.one()
    return Observer(shop.project).look(shop.project, [one])[one.assignment_id]


def taken(shop: Workshop) -> Claim:
    found = shop.take()
    assert found is not None
    return found[1]


@pytest.mark.req("3-044")
def test_a_run_is_seen_from_its_start_to_its_end(shop: Workshop, clock: Clock, tmp_path: Path) -> None:
    """Break: `_of_task` without `claim` (never taken), without `completed` (never ended), or with another's run."""
    waiting = look(shop)
    assert (waiting.run, waiting.run_id, waiting.session_key) == (Run.WAITING, "1", ""), "no worker has it"
    assert shop.one().status is AssignmentStatus.DISPATCHED
    claim = taken(shop)
    worker_at(shop, claim, since=clock.now)
    begun = look(shop)
    assert (begun.run, begun.run_id) == (Run.IN_FLIGHT, "1")
    shop.tick()
    assert (shop.one().status, shop.view.nodes[LEAF].status) == (
        AssignmentStatus.ACTIVE,
        NodeStatus.IN_PROGRESS,
    )
    repo = Repo(tmp_path / "root")
    commit = repo.commit("part.txt", "x\n")
    shop.source.finish(claim, commit)
    ended = look(shop)
    assert (ended.run, ended.run_id) == (Run.ENDED, "1")
    assert ended.merged is not None
    assert (ended.merged.commit, ended.merged.evidence.files_touched) == (commit, ("part.txt",))
    shop.tick()
    assert (shop.one().status, shop.view.nodes[LEAF].status) == (AssignmentStatus.DONE, NodeStatus.DONE)


@pytest.mark.req("3-044")
def test_a_run_that_failed_is_seen_as_that(shop: Workshop, clock: Clock) -> None:
    """Break: treat a quarantined task as a waiting one; or lose its cause or time of failure."""
    for attempt in range(3):
        clock.now += 10
        fail(shop, taken(shop))
        seen = look(shop)
        assert (seen.run is Run.FAILED) is (attempt == 2), "a task that is retried has not failed"
    assert (seen.run_id, seen.run_error, seen.run_ended_at) == ("1", "it failed", clock.now)
    shop.tick()
    assert "it failed" in str(shop.events("assignment.stalled"))
    assert [one.purpose for one in shop.history()] == ["work", "reassign"], "another worker is to do it"


@pytest.mark.req("3-044")
def test_a_run_that_ended_with_a_question_or_is_gone_is_seen_as_that(shop: Workshop, clock: Clock) -> None:
    """Break: leave out tasks that the ledger holds; or treat a task without its file as alive."""
    shop.source.release(taken(shop), "Which colour?", hold="blocked")
    asked = look(shop)
    assert (asked.run, asked.waiting_since) == (Run.ENDED, clock.now)
    assert asked.waiting is not None
    assert asked.waiting.question == "Which colour?"
    other = Workshop(shop.project.root.path.parent / "other")
    other.tick()
    other.source.release(taken(other), "its daemon ended")
    assert look(other).run is Run.WAITING
    (other.files.directory / "1.json").unlink()
    assert look(other).run is Run.NONE, "a task that no worker has and that no longer exists"


@pytest.mark.req("3-045", "3-097")
def test_of_whoever_has_the_work_the_session_and_its_last_deed_are_known(
    shop: Workshop, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: give all assignments the first worker's record; or use the file's time, not the agent's own."""
    repo = Repo(tmp_path / "root")
    repo.commit("a.txt", "a\n")
    repo.git("update-ref", "refs/remotes/origin/main", "HEAD")
    config = shop.project.config
    config = replace(config, repo=replace(config.repo, default_branch="main"))
    shop.project = replaced(shop.project, config=config)
    talk = tmp_path / "talk.jsonl"
    began = clock.now
    name = worker_at(shop, taken(shop), since=began, transcript=talk)
    with shop.project.store.transaction() as tx:
        tx.update(name, claude_session_id="11111111-2222-3333-4444-555555555555")
        tx.put(replace(tx.worker(name), name="auto-2", branch="auto-2", assignment=None, transcript_path=""))
    wrote, grew, committed = began + 100, began + 200, began + 300
    said = {"type": "assistant", "timestamp": datetime.fromtimestamp(wrote, UTC).isoformat()}
    talk.write_text(
        json.dumps({**said, "message": {"content": "Hm."}}) + "\n" + json.dumps({"type": "user"}) + "\n"
    )
    os.utime(talk, (grew, grew))
    repo.git("checkout", "-q", "-b", name)
    monkeypatch.setenv("GIT_COMMITTER_DATE", f"@{int(committed)} +0000")
    repo.commit("b.txt", "b\n")
    clock.now = began + 310
    seen = look(shop)
    assert seen.session_key == "agent:auto:worker:auto-1"
    assert seen.session_id == "11111111-2222-3333-4444-555555555555"
    assert seen.reachable
    assert (seen.agent_wrote_at, seen.session_updated_at, seen.committed_at) == (wrote, grew, int(committed))
    shop.tick()
    kept = shop.one()
    assert (kept.session_key, kept.session_id, kept.run_id) == (seen.session_key, seen.session_id, "1")
    assert kept.last_observed_activity_at == int(committed), "the latest of them"
    with shop.project.store.transaction() as tx:
        tx.update(name, held=True)
    assert not look(shop).reachable, "the user has it"


@pytest.mark.parametrize("outcome", ["acknowledged", "refused"])
def test_only_what_was_sent_after_a_question_and_arrived_is_an_answer(
    shop: Workshop, clock: Clock, outcome: str
) -> None:
    """A receipt may come after the agent's question. Break: count the receipt's time, or a refused prompt."""
    name = worker_at(shop, taken(shop), since=clock.now)

    def tell(action: str, prompt: str, **more: str) -> float:
        with shop.project.store.transaction() as tx:
            tx.emit(action, worker=name, prompt_id=prompt, **more)
        return float(list(EventLog(str(shop.project.root.events)).all())[-1]["ts"])

    before = tell("prompt_pending", "message-1")
    asked = tell("agent_reported", "", kind="blocked", text="A or B?")
    tell("prompt_delivered", "message-1", outcome="acknowledged")
    assert look(shop).told_at == (before,)
    assert before < asked
    after = tell("prompt_pending", "message-2")
    tell("prompt_delivered", "message-2", outcome=outcome)
    assert look(shop).told_at == ((before, after) if outcome == "acknowledged" else (before,))
    assert len(look(shop).prompted_at) == 4, "each may show in the transcript"


def test_work_that_was_undone_before_anybody_looked_is_not_merged() -> None:
    """For a user's own worker, only the event log tells. Break: no case "undone" in `_Log._note`."""
    log = _Log()
    for action, commit in (("accepted", "one"), ("accepted", "two"), ("undone", "two")):
        log._note({"action": action, "worker": "adam", "commit": commit, "ts": 1.0})
    assert [commit for _, commit in log.accepted["adam"]] == ["one"]
