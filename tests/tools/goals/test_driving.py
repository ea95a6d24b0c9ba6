"""The goal runner on a root without workers: which ones it checks, what it defers, which it cannot reach."""

import json
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from llmc.agents.claude.transcripts import ClaudeTranscript
from llmc.config.model import Notify
from llmc.config.paths import Root
from llmc.goals import dispatch as goal_dispatch
from llmc.goals import runner as goal_runner
from llmc.goals.dispatch import Done, perform
from llmc.goals.drive.intents import Action
from llmc.goals.drive.ladder import session_key
from llmc.goals.drive.liveness import Message, Run, Signals
from llmc.goals.drive.updates import Claim, Update
from llmc.goals.goals import new_goal, open_store, reply_to
from llmc.goals.model import (
    Assignment,
    AssignmentStatus,
    Change,
    DeliveryContext,
    Mode,
    NodeStatus,
    Origin,
    Result,
)
from llmc.goals.planning import create
from llmc.goals.runner import Runner
from llmc.notifications.notify import _wanted, channels_of
from llmc.notifications.rules import Notice, of_event
from llmc.records.events import read_lines
from llmc.repo.project import Project, bare_project
from tests.support import on_postgres
from tests.support.goal_records import GOAL, assignment, dispatch, goal, node
from tests.support.one_leaf import OneLeaf, seen

S = AssignmentStatus


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = on_postgres.bare(tmp_path)
    project.store.create()
    return project


class Seen:
    """Records the requests, and answers as it is told to."""

    def __init__(self, **signals: Signals) -> None:
        self.signals = signals
        self.asked: list[tuple[set[str], set[str]]] = []

    def look(
        self, project: Project, assignments: Iterable[Assignment], samples: Collection[str] = ()
    ) -> dict[str, Signals]:
        ids = {one.assignment_id for one in assignments}
        self.asked.append((ids, set(samples)))
        return {one: self.signals[one] for one in ids if one in self.signals}


def given(name: str, leaf: str, status: AssignmentStatus, **fields: object) -> Assignment:
    now = goal_runner.now_unix()
    return assignment(
        status,
        assignment_id=name,
        work_node_id=leaf,
        session_key=session_key("auto", "auto-1"),
        session_id="s-1",
        run_id="17",
        created_at=now - 9000,
        updated_at=now - 9000,
        last_dispatch_at=now - 9000,
        dispatch_history=(dispatch(f"D_{name}", ts=now - 9000, result=Result.ACCEPTED, run_id="17"),),
        **fields,
    )


def kept(project: Project, *assignments: Assignment, **fields: object) -> None:
    open_leaf = replace(node("S1.1.1"), status=NodeStatus.IN_PROGRESS)
    nodes = (node("P1"), node("T1.1"), open_leaf, replace(node("S1.1.2"), depends_on=("S1.1.1",)))
    change = Change(goal=goal(**fields), nodes=nodes, assignments=assignments)
    open_store(project).apply(change)


def driven(project: Project, seen: Seen) -> goal_runner.Ticked:
    runner = Runner(project)
    runner._observer = seen  # type: ignore[assignment]
    done = runner.tick(project, "a test")
    assert done.ok, done.problem
    return done


@pytest.mark.req("3-025", "3-026")
def test_only_those_at_work_are_looked_at_and_only_the_stale_are_read(project: Project) -> None:
    """Break: let `_attend` check all assignments; or request samples of every worker."""
    at_work = given("A_1", "S1.1.1", S.ACTIVE)
    over = given("A_2", "S1.1.2", S.CANCELLED)
    kept(project, at_work, over)
    now = goal_runner.now_unix()
    alive = Signals(run=Run.IN_FLIGHT, run_id="17", agent_wrote_at=now, session_key=at_work.session_key)
    quiet = Seen(A_1=alive)
    driven(project, quiet)
    assert quiet.asked == [({"A_1"}, set())], "alive: no messages are read"
    silent = Seen(A_1=Signals(run=Run.NONE, run_id="17", session_key=at_work.session_key))
    driven(project, silent)
    # what was seen of the first keeps it alive until its time is over
    assert all(samples == set() for _, samples in silent.asked)
    store = open_store(project)
    store.update(
        GOAL,
        lambda view: Change(
            assignments=(
                replace(
                    view.assignments["A_1"],
                    last_observed_activity_at=now - 9000,
                    expected_next_update_at=None,
                ),
            )
        ),
    )
    stale = Seen(A_1=Signals(run=Run.NONE, run_id="17", session_key=at_work.session_key))
    driven(project, stale)
    assert stale.asked == [({"A_1"}, set()), ({"A_1"}, {"A_1"})], "stale: then, and only its own"


@contextmanager
def held_by_another(project: Project, worker: str) -> Iterator[None]:
    """As an accept, or a user's command, holds a worker."""
    has_it, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        with project.worker_lock(worker):
            has_it.set()
            may_go.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert has_it.wait(10)
    try:
        yield
    finally:
        may_go.set()
        thread.join()


@pytest.mark.req("3-032")
def test_a_busy_worker_is_left_alone_and_the_records_go_on(project: Project) -> None:
    """Break: let `perform` treat a LockTimeout as an error; let `_act` write an outcome for it."""
    stalls = given("A_1", "S1.1.1", S.ACTIVE)
    kept(project, stalls)
    signals = Signals(
        run=Run.NONE,
        run_id="17",
        session_key=stalls.session_key,
        session_id="s-1",
        reachable=True,
        messages=(),
    )
    with held_by_another(project, "auto-1"):
        done = driven(project, Seen(A_1=signals))
    assert done.actions
    assert "nudge S1.1.1: postponed" in done.actions[0]
    after = open_store(project).view(GOAL).assignments["A_1"]
    assert after.status is S.STALLED, "what was observed is stored"
    assert (waits := after.pending) is not None, "what was to be sent is not lost"
    # Free again: the same intent is completed, under its own id.
    driven(project, Seen(A_1=signals))
    tried = open_store(project).view(GOAL).assignments["A_1"].dispatch_history[-1]
    assert tried.dispatch_id == waits.dispatch_id
    assert tried.result is not Result.PENDING


@pytest.mark.req("3-099", "3-115", "3-X6")
def test_a_question_goes_where_the_goal_came_from_or_is_an_error(project: Project) -> None:
    """The origin is set by `goal create --reply-to`. Once the channel exists, the question goes only there.

    Break: `_ask` without `how_told`; an escalation that ignores the goal's origin;
    `_wanted` that returns all channels.
    """
    where = reply_to("webhook:ada", "t-1", "main")
    assert where == DeliveryContext(channel="webhook", to="ada", thread="t-1", account="main")
    goal = new_goal("Import", origin=Origin(origin_delivery_context=where))
    made = create(project, goal, None).view.goal
    stalls = given("A_1", "S1.1.1", S.STALLED, retry_count=9)
    kept(project, stalls, origin=made.origin)
    signals = Signals(run=Run.NONE, run_id="17", session_key=stalls.session_key, messages=())
    driven(project, Seen(A_1=signals))
    after = open_store(project).view(GOAL).assignments["A_1"]
    asked = after.dispatch_history[-1]
    assert (asked.mode, asked.delivery_context) == (Mode.ESCALATE, where)
    assert (asked.result, "channel 'webhook' is not configured" in asked.notes) == (Result.ERROR, True)
    assert after.status is S.BLOCKED, "it is in the inbox"
    assert not asked_events(project), "not another way"

    settings = Notify(webhook="http://127.0.0.1:9/", command="true")
    project = replace(project, config=replace(project.config, notify=settings))
    again = replace(action(Mode.ESCALATE, purpose="escalate"), delivery_context=where)
    assert perform(project, again, made, None) == Done(Result.OK, "in the inbox; sent to webhook")
    [notice] = [one for row in asked_events(project) for one in of_event(row)]
    assert isinstance(notice, Notice)
    told = {"channel": "webhook", "to": "ada", "thread": "t-1", "account": "main"}
    assert told.items() <= notice.facts.items(), "its receiver knows whom it is for"
    assert list(_wanted(channels_of(settings), notice)) == ["webhook"]
    nowhere = replace(notice, facts={"channel": "inbox"})
    assert list(_wanted(channels_of(settings), nowhere)) == []


def asked_events(project: Project) -> list[dict[str, Any]]:
    rows = map(json.loads, read_lines(project.root.events))
    return [row for row in rows if row["action"] == "goal_asked"]


def action(mode: Mode, **fields: object) -> Action:
    base = {
        "dispatch_id": "d1",
        "goal_id": GOAL,
        "assignment_id": "A_1",
        "work_node_id": "S1.1.1",
        "purpose": "nudge",
        "mode": mode,
        "text": "How does it stand?",
        "session_key": session_key("auto", "auto-1"),
    }
    return Action(**{**base, **fields})  # type: ignore[arg-type]


@pytest.mark.req("3-X22")
def test_what_was_typed_under_an_id_is_not_typed_again_after_a_restart(project: Project) -> None:
    """Break: `_delivered` that answers None; or that checks only the worker's latest prompt."""
    with project.store.transaction() as tx:
        tx.emit("prompt_delivered", worker="auto-1", prompt_id="goal-d1", outcome="acknowledged")
        tx.emit("prompt_delivered", worker="auto-1", prompt_id="task-9", outcome="acknowledged")
    # another process, much later: only what is on disk is known
    again = bare_project(Root(project.root.path))
    done = goal_dispatch.perform(again, action(Mode.SEND), goal(), node("S1.1.1"))
    assert (done.result, done.notes) == (Result.OK, "the prompt was already sent")
    other = goal_dispatch.perform(again, action(Mode.SEND, dispatch_id="d2"), goal(), node("S1.1.1"))
    assert other.result is Result.ERROR, "another id is another message, and there is no such worker here"


@pytest.mark.req("3-X28")
def test_what_is_dropped_before_it_left_is_never_called_accepted() -> None:
    """Break: `given_up` with the result ACCEPTED."""
    leaf = OneLeaf().begin()
    assert leaf.look(seen(), after=2000.0) == ["nudge"]
    nudge = leaf.one.dispatch_history[-1]
    assert nudge.result is Result.PENDING
    # it was never sent: the process was killed; in the meantime the worker continues by itself
    assert leaf.look(seen(run=Run.IN_FLIGHT, agent_wrote_at=leaf.now + 9.0), after=10.0) == []
    (dropped,) = [one for one in leaf.one.dispatch_history if one.dispatch_id == nudge.dispatch_id]
    assert (dropped.result, dropped.notes) == (Result.ERROR, "no longer needed")


@pytest.mark.req("3-114", "3-X13")
def test_a_worker_is_heard_on_its_own_assignment_alone() -> None:
    """Break: `hear` without may_report."""
    leaf = OneLeaf().begin()
    leaf.look(seen(run=Run.IN_FLIGHT, agent_wrote_at=leaf.now + 9.0), after=10.0)
    assert leaf.one.session_key == session_key("auto", "auto-1")
    word = Update(status=Claim.IN_PROGRESS, summary="from elsewhere")
    foreign = seen(run=Run.NONE, session_key=session_key("auto", "auto-2"), session_id="s-2", reports=(word,))
    leaf.look(foreign, after=5.0)
    assert "work.reported" not in leaf.types(), "another worker, while the run is not its own"
    own = seen(run=Run.IN_FLIGHT, agent_wrote_at=leaf.now + 4.0, reports=(word,))
    leaf.look(own, after=5.0)
    assert leaf.types().count("work.reported") == 1


@pytest.mark.req("3-093")
def test_a_report_without_ids_is_about_none_of_several() -> None:
    """One session has two assignments: both would take the report. Break: leave `of_session` empty."""
    leaf = OneLeaf().begin()
    other = replace(leaf.one, assignment_id="A_other", work_node_id="S9.9.9")
    leaf.view = replace(leaf.view, assignments={**leaf.view.assignments, other.assignment_id: other})
    word = Update(status=Claim.IN_PROGRESS, summary="half of it")
    leaf.look(seen(run=Run.IN_FLIGHT, agent_wrote_at=leaf.now + 9.0, reports=(word,)), after=10.0)
    refused = [one for one in leaf.events if one.type == "update.refused"]
    assert "working on 2 plan items" in str(refused)
    assert "work.reported" not in leaf.types()
    named = replace(word, work_node_id="S1.1.1")
    leaf.look(seen(run=Run.IN_FLIGHT, agent_wrote_at=leaf.now + 9.0, reports=(named,)), after=10.0)
    assert leaf.types().count("work.reported") == 1


def row(kind: str, at: float, content: object) -> str:
    when = datetime.fromtimestamp(at, UTC).isoformat()
    message = {"role": kind, "content": content}
    return json.dumps({"type": kind, "uuid": f"u{at}", "timestamp": when, "message": message}) + "\n"


@pytest.mark.req("3-090", "3-X2", "3-X12")
def test_the_agents_own_last_block_is_heard_once_and_our_words_never(tmp_path: Path) -> None:
    """Break: let `_role` treat our prompts, or a tool's output, as the agent's words."""
    leaf = OneLeaf().begin()

    def block(summary: str) -> str:
        return (
            f'So:\n```json\n{{"overseerUpdate": {{"status": "in_progress", "summary": "{summary}"}}}}\n```\n'
        )

    def heard(*rows: str) -> list[str]:
        path = tmp_path / "transcript.jsonl"
        path.write_text("".join(rows))
        messages = tuple(Message(*one) for one in ClaudeTranscript(path).last_messages(20))
        leaf.look(seen(messages=messages), after=60.0)
        return [one.summary for one in leaf.crystals.values() if one.work_node_id == "S1.1.1"]

    leaf.now += 2000.0
    at = leaf.now
    ours = row("user", at + 1, f"[llmc goal-d1]\n\nHow does it stand?\n{block('our own example')}")
    output = row(
        "user", at + 2, [{"type": "tool_result", "content": block("of a tool"), "text": block("of a tool")}]
    )
    assert heard(ours, output) == []
    said = row("assistant", at + 3, [{"type": "text", "text": block("first") + block("the parser reads")}])
    assert heard(ours, output, said) == ["the parser reads"], "the last block of its last message"
    assert heard(ours, output, said, row("user", at + 4, block("a person pastes"))) == ["the parser reads"]
    assert leaf.types().count("work.reported") == 1
