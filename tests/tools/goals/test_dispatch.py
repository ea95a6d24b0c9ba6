"""What goals do: each action once per id, on real task files, ledger and store; and its outcome."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as replaced

from llmc.base import faults
from llmc.base.names import PromptId, TaskId
from llmc.config.goal_options import GoalPlanner
from llmc.goals import dispatch as goal_dispatch
from llmc.goals import goals, planning, runner, work
from llmc.goals.desk import Aside
from llmc.goals.drive.goal_end import PASSED
from llmc.goals.drive.moves import criterion
from llmc.goals.model import Change, DeliveryContext, GoalStatus, Mode, NodeStatus, Result
from llmc.goals.model import Tested as Ran
from llmc.goals.runner import Runner
from llmc.goals.store import goal_store
from llmc.records.books import Claim
from llmc.records.worker import Outcome
from llmc.sessions.submit import Receipt
from llmc.tasks.source import source_of
from tests.support import on_postgres
from tests.support.goal_workshop import (
    GOAL,
    LEAF,
    Clock,
    Workshop,
    action,
    fail,
    instead,
    set_goal,
    task_id,
    withdraw,
    worker_at,
)
from tests.support.goal_world import goal, plan

pytestmark = on_postgres.PLAYED


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path / "root")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock().set_up(monkeypatch)


# --- task files


@pytest.mark.req("3-095", "3-110", "3-X22", "3-134")
def test_one_id_makes_one_file_whatever_became_of_it(shop: Workshop) -> None:
    """Break: look for the dispatch only in the files."""
    first = shop.perform(action())
    assert (first.result, first.run_id) == (Result.ACCEPTED, "1")
    assert shop.tasks()["1"].dispatch == "D1"
    assert shop.perform(action()).run_id == "1", "it waits"
    taken = shop.take()
    assert taken is not None
    assert shop.perform(action()).run_id == "1", "a worker has it"
    shop.complete(taken[1])
    (shop.files.directory / "1.json").unlink()  # as the client does
    assert shop.perform(action()).run_id == "1", "it is over"
    assert shop.tasks() == {}
    assert shop.perform(action("D2")).run_id == "2", "an intended repeat has another id"


@pytest.mark.req("3-X22")
def test_a_file_that_is_being_written_may_be_it(shop: Workshop) -> None:
    """Break: create another file while one cannot be read."""
    path = shop.files.directory / "1.json"
    path.write_text('{"id": "1", "subj')
    assert shop.perform(action()).result is None
    path.unlink()
    assert shop.perform(action()).result is Result.ACCEPTED


def test_what_was_withdrawn_leaves_no_trace_on_another_task(shop: Workshop) -> None:
    """Break: leave withdrawn tasks out of Books.highest, and do not keep the number in TaskFiles.remove."""
    shop.perform(action())
    assert shop.perform(withdraw("D1")).result is Result.OK
    assert shop.tasks() == {}
    again = shop.perform(action("D2"))
    assert again.run_id == "2", "the number of a removed task would make this one withdrawn, too"
    assert shop.take() is not None
    assert (shop.files.directory / ".highwatermark").read_text() == "1", "for the client's own new tasks"


@pytest.mark.parametrize("last", ["waiting", "claimed", "lost", "quarantined", "completed"])
def test_what_is_taken_back(shop: Workshop, last: str) -> None:
    """Break: leave out the claim, or the removal."""
    shop.perform(action())
    claim = None
    if last != "waiting":
        taken = shop.take()
        assert taken is not None
        claim = taken[1]
    if last == "quarantined":
        for _ in range(2):
            assert claim is not None
            fail(shop, claim)
            again = shop.take()
            assert again is not None
            claim = again[1]
        fail(shop, claim)  # type: ignore[arg-type]
    elif last == "completed":
        shop.complete(claim)  # type: ignore[arg-type]
    elif last == "lost":
        (shop.files.directory / "1.json").unlink()
    assert shop.perform(withdraw("D1")).result is Result.OK
    assert shop.perform(withdraw("D1")).result is Result.OK, "a repeated withdrawal"
    assert shop.take() is None
    assert shop.source.books().claims == {}
    assert shop.source.books().is_completed(shop.files.key("1")) is (last == "completed")
    assert [task for task in shop.tasks().values() if task.status != "completed"] == []


@pytest.mark.req("3-X22", "3-110")
def test_what_landed_meanwhile_is_not_done_again(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: check for landed work before the withdrawal, not after it."""
    shop.perform(action())
    taken = shop.take()
    assert taken is not None
    before = goal_dispatch._taken_back

    def lands_first(*args: Any) -> bool:
        shop.complete(taken[1])
        return before(*args)

    monkeypatch.setattr(goal_dispatch, "_taken_back", lands_first)
    done = shop.perform(instead("D2", "D1"))
    assert (done.result, done.notes) == (Result.ERROR, "task 1 has already landed")
    assert list(shop.tasks()) == ["1"]


def test_what_a_person_has_is_waited_for(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: count a refused reset as a failed withdrawal; after six the work would go on forever."""
    from llmc.base.errors import Refused

    shop.perform(action())
    taken = shop.take()
    assert taken is not None
    record = worker_at(shop, taken[1])
    monkeypatch.setattr(goal_dispatch, "reset_unattended", _raise(Refused(f"{record} is held")))
    done = shop.perform(withdraw("D1"))
    assert done.result is None
    assert "is being claimed or landed" in done.notes
    assert shop.source.books().holds(taken[1].id)
    assert shop.source.books().kept_back(shop.files.key("1")) == "withdrawn"


def _raise(error: Exception) -> Callable[..., Any]:
    def fails(*args: Any, **kwargs: Any) -> Any:
        raise error

    return fails


@pytest.mark.soak
def test_many_rounds_of_a_withdrawal_against_a_claim(tmp_path: Path) -> None:
    """Break: as in the short one."""
    _race(tmp_path, 200)


def test_a_withdrawal_against_a_claim(tmp_path: Path) -> None:
    """Break: let a claim lift a withdrawal (books.fold), or remove the file without its locks."""
    _race(tmp_path, 15)


def _race(directory: Path, rounds: int) -> None:
    """A worker's claim is visible to the withdrawal: a task is never both withdrawn and started."""
    shop = Workshop(directory / "root")
    for number in range(rounds):
        dispatch = f"D{number}"
        task = task_id(shop.perform(action(dispatch)))
        start = threading.Barrier(2)

        def take(
            task: TaskId = task, start: threading.Barrier = start, dispatch: str = dispatch
        ) -> Claim | None:
            start.wait(10)
            return source_of(shop.project).claim(shop.files.key(task), "auto-1", "x", dispatch)

        def take_back(start: threading.Barrier = start, dispatch: str = dispatch) -> Result | None:
            start.wait(10)
            return shop.perform(withdraw(dispatch)).result

        with ThreadPoolExecutor(2) as pool:
            claim, result = (one.result(30) for one in (pool.submit(take), pool.submit(take_back)))
        books = shop.source.books()
        if result is Result.OK:
            assert claim is None or not books.holds(claim.id), "a worker has a withdrawn task"
            assert str(task) not in shop.tasks()
        else:
            assert shop.perform(withdraw(dispatch)).result is Result.OK, "the next tick withdraws it"
        assert shop.take() is None


def test_what_is_withdrawn_stays_so_when_its_claim_ends(shop: Workshop) -> None:
    """Break: pop every withdrawn task in books.fold at a claim: any worker could take it again."""
    shop.perform(action())
    shop.source.write("withdrawn", Claim("", shop.files.key("1"), ""), reason="not wanted")
    late = shop.source.claim(shop.files.key("1"), "auto-1", "x", "D1")
    assert late is not None, "its file did not say so yet"
    shop.source.release(late, "reset of auto-1")
    assert shop.tasks()["1"].waits_for_a_person == "withdrawn"
    assert shop.take() is None


# --- words


@pytest.mark.req("3-102", "3-134", "3-X7")
@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        (Outcome.ACKNOWLEDGED, Result.OK),
        (Outcome.QUEUED, Result.ACCEPTED),
        (Outcome.UNCONFIRMED, Result.TIMEOUT),
        (Outcome.REFUSED, Result.ERROR),
    ],
)
def test_what_became_of_a_word(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, outcome: Outcome, result: Result
) -> None:
    """Break: treat unconfirmed as an error, or queued as read."""
    typed = _typist(shop, monkeypatch, outcome)
    said = action(purpose="nudge", mode=Mode.SEND, session_key="agent:auto:worker:auto-1")
    assert shop.perform(said).result is result
    assert typed == ["goal-d1"]


@pytest.mark.req("3-110", "3-106")
def test_what_did_not_arrive_is_typed_again_under_its_id(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: take any earlier outcome as the answer; a resend would never send."""
    typed = _typist(shop, monkeypatch, Outcome.REFUSED, Outcome.UNCONFIRMED, Outcome.ACKNOWLEDGED)
    said = action(purpose="answer", mode=Mode.SEND, session_key="agent:auto:worker:auto-1")
    assert [shop.perform(said).result for _ in range(4)] == [
        Result.ERROR,
        Result.TIMEOUT,
        Result.OK,
        Result.OK,
    ]
    assert typed == ["goal-d1"] * 3


@pytest.mark.req("3-110")
def test_what_arrived_unseen_is_not_typed_again(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: type again whatever the conversation says."""
    typed = _typist(shop, monkeypatch, Outcome.UNCONFIRMED)
    said = action(purpose="answer", mode=Mode.SEND, session_key="agent:auto:worker:auto-1")
    assert shop.perform(said).result is Result.TIMEOUT
    transcript = Path(shop.project.store.worker("auto-1").transcript_path)
    transcript.write_text('{"type": "user", "message": {"content": "[llmc goal-d1]\\nDo it.\\n"}}\n')
    assert shop.perform(said).result is Result.OK
    assert typed == ["goal-d1"]


def _typist(shop: Workshop, monkeypatch: pytest.MonkeyPatch, *outcomes: Outcome) -> list[str]:
    """What is typed has these outcomes, logged as submit writes them."""
    shop.perform(action("D0"))
    taken = shop.take()
    assert taken is not None
    worker_at(shop, taken[1])
    typed: list[str] = []

    def send(project: Any, worker: str, text: str, prompt_id: PromptId) -> Receipt:
        outcome = outcomes[len(typed)]
        typed.append(prompt_id)
        with shop.project.store.transaction() as tx:
            tx.emit("prompt_delivered", worker=worker, prompt_id=prompt_id, outcome=outcome, elapsed_ms=1)
        return Receipt(worker, prompt_id, outcome, 1)

    monkeypatch.setattr(goal_dispatch, "send_message", send)
    monkeypatch.setattr(goal_dispatch, "finish_interrupted", lambda project, name: project.store.worker(name))
    return typed


def test_a_worker_that_is_busy_is_tried_again_less_and_less_often(
    shop: Workshop, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: settle at each tick; a validation of ten minutes would write six hundred log lines."""
    with monkeypatch.context() as patched:
        patched.setattr(goal_dispatch, "_spawn", lambda *_: goal_dispatch.Done(None, "busy"))
        shop.tick()
        for _ in range(600):
            clock.now += 1
            shop.tick()
    (sent,) = shop.history()
    assert sent.result is Result.PENDING
    assert 10 <= sent.attempts <= 17
    clock.now += 61
    shop.tick()
    assert [one.result for one in shop.history()] == [Result.ACCEPTED]


# --- a person


@pytest.mark.req("3-X6", "3-103")
def test_a_question_over_an_unknown_channel_is_an_error(shop: Workshop) -> None:
    """Break: report it as accepted."""
    where = DeliveryContext(channel="pigeon")
    asked = shop.perform(action(purpose="escalate", mode=Mode.ESCALATE, delivery_context=where))
    assert asked.result is Result.ERROR
    assert "channel 'pigeon' is not configured" in asked.notes
    assert shop.told("goal_asked") == []
    assert shop.perform(action(purpose="escalate", mode=Mode.ESCALATE)).result is Result.OK
    assert len(shop.told("goal_asked")) == 1


@pytest.mark.req("3-030", "3-X22")
@pytest.mark.parametrize("fault", ["goals.dispatch:after:fail", "state.replace:after:fail"])
def test_a_person_is_told_once_whatever_breaks_before_it_is_noted(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Break: notify without checking what was sent; or check only the log, which may lag after a crash."""
    question = action(purpose="escalate", mode=Mode.ESCALATE)
    faults._passed.clear()
    monkeypatch.setenv("LLMC_FAULT", fault)
    assert shop.perform(question).result is Result.ERROR
    monkeypatch.delenv("LLMC_FAULT")
    for _ in range(2):
        assert shop.perform(question).result is Result.OK
    assert shop.perform(replaced(question, dispatch_id="D2")).result is Result.OK, "a reminder has its own id"
    assert [row["dispatch_id"] for row in shop.told("goal_asked")] == ["D1", "D2"]


def test_a_budget_that_is_used_up_is_told_whatever_breaks(
    shop: Workshop, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: pause the goal first, and notify afterwards."""
    set_goal(shop, budget_usd=5.0)
    monkeypatch.setattr(goals.GoalSpending, "of", lambda self, project, view: goals.GoalCost(work=6.0))
    for fault in ("state.write:before:fail", "goals.write:before:fail", "goals.write:after:fail"):
        faults._passed.clear()
        monkeypatch.setenv("LLMC_FAULT", fault)
        assert not shop.tick().ok, fault
        monkeypatch.delenv("LLMC_FAULT")
    shop.tick()
    assert shop.view.goal.status is GoalStatus.PAUSED
    (told,) = shop.told("goal_asked")
    assert "spent $6.00 of its $5.00 budget" in told["reason"]
    assert len(shop.events("goal.budget_reached")) == 1
    assert shop.tasks() == {}, "nothing was sent"


# --- the whole tick


@pytest.mark.req("3-029", "3-030", "3-031", "3-X7")
def test_an_outcome_is_written_once(shop: Workshop, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: overwrite an accepted outcome with an accepted one."""
    deeds: list[str] = []
    before = goal_dispatch.perform

    def perform(*args: Any) -> goal_dispatch.Done:
        assert [one.result for one in shop.history()] == [Result.PENDING], "the intent is stored first"
        deeds.append(args[1].dispatch_id)
        return before(*args)

    monkeypatch.setattr(goal_dispatch, "perform", perform)
    monkeypatch.setenv("LLMC_FAULT", "goals.outcome:before:fail")
    assert not shop.tick().ok
    monkeypatch.delenv("LLMC_FAULT")
    assert list(shop.tasks()) == ["1"], "it was done, but not recorded"
    shop.restarted()
    clock.now += 5
    shop.tick()
    shop.tick()
    (sent,) = shop.history()
    assert (sent.result, sent.run_id) == (Result.ACCEPTED, "1")
    assert deeds == [sent.dispatch_id], "its own task file proves it"
    assert len(shop.events("dispatch.accepted")) == 1


@pytest.mark.req("3-103", "3-109")
def test_what_fails_waits_and_is_tried_again(
    shop: Workshop, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: leave the backoff out of intents.outcome."""
    with monkeypatch.context() as patched:
        patched.setattr(goal_dispatch, "add", _raise(goal_dispatch.LlmcError("the disk is full")))
        shop.tick()
        (sent,) = shop.history()
        assert (sent.result, sent.notes) == (Result.ERROR, "the disk is full")
        assert shop.one().backoff_until == clock.now + 120
        for _ in range(3):
            clock.now += 30
            shop.tick()
    assert [one.attempts for one in shop.history()] == [1]
    clock.now += 301
    shop.tick()
    (sent,) = shop.history()
    assert (sent.result, sent.attempts) == (Result.ACCEPTED, 2)


def test_a_goal_that_was_paused_in_a_crash_gives_back_what_is_out(
    shop: Workshop, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: leave PENDING out of what a run proves; the file would be taken, paused or not."""
    monkeypatch.setenv("LLMC_FAULT", "goals.outcome:before:fail")
    shop.tick()
    monkeypatch.delenv("LLMC_FAULT")
    assert list(shop.tasks()) == ["1"]
    goals.pause(shop.project, GOAL)
    for _ in range(3):
        clock.now += 5
        shop.tick()
    assert shop.tasks() == {}
    goals.resume(shop.project, GOAL)
    clock.now += 400
    shop.tick()
    assert list(shop.tasks()) == ["2"]
    assert shop.take() is not None


def test_one_goal_that_cannot_be_decided_stops_no_other(
    shop: Workshop, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: leave the `except` out of Runner._tick."""
    nodes = [replace(node, goal_id="goal_2") for node in plan(1, 1, 1).values()]
    shop.store.apply(Change(goal=goal(goal_id="goal_2", created_at=clock.now + 1), nodes=tuple(nodes)))
    before = runner.decide

    def decide(view: Any, *args: Any, **more: Any) -> Any:
        if view.goal.goal_id == GOAL:
            raise KeyError("S9.9.9")
        return before(view, *args, **more)

    monkeypatch.setattr(runner, "decide", decide)
    ticked = shop.tick()
    assert not ticked.ok
    assert "goal_1: internal error: KeyError" in ticked.problem
    assert [task.dispatch for task in shop.tasks().values()] != []
    monkeypatch.setattr(runner, "decide", before)
    assert shop.tick().ok
    assert len(shop.tasks()) == 2


def test_a_planner_holds_up_nobody(tmp_path: Path, clock: Clock) -> None:
    """Break: give the Runner no `aside`."""
    gate = tmp_path / "go"
    command = f"while ! test -e {gate}; do sleep 0.02; done; echo nonsense; echo x >> {tmp_path}/asked"
    shop = Workshop(tmp_path / "root", planner=GoalPlanner(command=command, max_repair_attempts=0))
    (leaf,) = (node for node in shop.view.nodes.values() if node.node_id == LEAF)
    shop.store.apply(Change(nodes=(replace(leaf, risk_level="high"),)))
    told = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        shop.runner = Runner(shop.project, Aside(pool, told.set))
        shop.tick()
        clock.now += 1
        taken = shop.take()
        assert taken is not None
        for _ in range(3):
            fail(shop, taken[1])
            taken = shop.take() or taken
        began = time.monotonic()
        shop.pass_time(clock, 500)
        assert [one.purpose for one in shop.history()] == ["work", "replan"]
        shop.pass_time(clock, 500)
        Runner(shop.project).tick(shop.project, "another process")
        assert time.monotonic() - began < 20
        assert shop.history()[-1].result is Result.PENDING, "a planner is at work on it"
        gate.touch()
        assert told.wait(30)
    shop.tick()
    assert shop.history()[1].result is Result.ERROR
    assert (tmp_path / "asked").read_text().split() == ["x"], "it was asked once"


def test_a_store_is_checked_from_end_to_end_once(
    shop: Workshop, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: reopen the store at each tick."""
    checked: list[str] = []
    before = goal_store.GoalStore._examine

    def examine(self: Any, db: Any) -> int:
        if self._examined is None:
            checked.append("whole")
        return before(self, db)

    monkeypatch.setattr(goal_store.GoalStore, "_examine", examine)
    for _ in range(5):
        shop.tick()
    assert checked == ["whole"]


@pytest.mark.req("3-007")
@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("writes", [0, 30])
def test_what_comes_after_a_damaged_store_is_driven(
    shop: Workshop, clock: Clock, seen: bool, writes: int
) -> None:
    """Break: let the desk rely on revisions alone, which start over in the damaged store's replacement."""
    for _ in range(10):
        set_goal(shop, title="A goal that was changed often")
    assert shop.tick().actions == ("work S1.1.1: accepted (task 1)",)
    shop.store.path.write_text("no database " * 500)
    if seen:  # otherwise the user is faster than the next tick
        assert "damaged" in shop.tick().problem
    planning.create(shop.project, goals.new_goal(title="Whoever writes sets it aside"), None)
    if seen:
        assert "safe mode" in shop.tick().problem
    shop.store.clear_safe_mode()
    nodes = [replace(node, goal_id="goal_2") for node in plan(1, 1, 1).values()]
    shop.store.apply(Change(goal=goal(goal_id="goal_2"), nodes=tuple(nodes)))
    for _ in range(writes):  # as many as the damaged one had, and more
        planning.create(shop.project, goals.new_goal(title="Another one"), None)
    assert shop.tick().actions == ("work S1.1.1: accepted (task 2)",), "only about the new goal"
    assert not shop.tick().did_work


def test_a_budget_reads_the_ledger_on(shop: Workshop, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: reopen the ledger for each budget check."""
    opened: list[int] = []
    before = goals.source_of
    monkeypatch.setattr(goals, "source_of", lambda project: opened.append(1) or before(project))
    set_goal(shop, budget_usd=5.0)
    for _ in range(4):
        clock.now += 200
        shop.tick()
    assert opened == [1]
    assert shop.view.goal.status is GoalStatus.ACTIVE


def test_room_that_becomes_free_is_used_at_once(tmp_path: Path, clock: Clock) -> None:
    """Break: leave is_hungry out of Desk.is_due: the other goal would wait for tick_every."""
    shop = Workshop(tmp_path / "root", max_in_progress=1)
    nodes = [replace(node, goal_id="goal_2") for node in plan(1, 1, 1).values()]
    shop.store.apply(Change(goal=goal(goal_id="goal_2", created_at=clock.now + 1), nodes=tuple(nodes)))
    shop.tick()
    taken = shop.take()
    assert taken is not None
    assert len(shop.tasks()) == 1
    clock.now += 1
    shop.tick()
    assert len(shop.tasks()) == 1
    shop.complete(taken[1])
    clock.now += 1
    shop.tick()
    assert shop.take() is not None


def test_questions_are_asked_once_and_told_again_a_few_times(shop: Workshop, clock: Clock) -> None:
    """Break: leave out the limit on reminders."""
    shop.tick()
    clock.now += 1
    taken = shop.take()
    assert taken is not None
    shop.source.release(taken[1], "Which colour?", hold="blocked")
    shop.pass_time(clock, 20 * 3600)
    purposes = [one.purpose for one in shop.history()]
    assert purposes == ["work", "escalate", "reminder", "reminder", "reminder"]
    (question,) = work.open_questions(shop.project)
    work.answer(shop.project, question.id, "Blue")
    clock.now += 400
    shop.tick()
    again = shop.take()
    assert again is not None
    assert "Blue" in again[0].description
    shop.complete(again[1])
    shop.tick()
    assert shop.view.goal.status is GoalStatus.COMPLETED


def test_a_goal_is_completed_only_by_the_commands_that_it_has(
    shop: Workshop, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user changes them while the former ones run; then the new ones run, too.

    Break: leave the comparison of the commands out of `check_criteria`; or let it answer that all is done.
    """
    done = [replace(node, status=NodeStatus.DONE) for node in shop.view.nodes.values()]
    set_goal(shop, success_criteria=(criterion("old"),))
    shop.store.apply(Change(nodes=tuple(done)))
    ran: list[str] = []
    began, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def result(project: Any, commit: str, command: str) -> Ran:
        ran.append(command)
        began.set()
        assert command == "new" or may_end.wait(30)
        return Ran(command=command, result=PASSED if command == "old" else "failed with exit code 1")

    monkeypatch.setattr(goal_dispatch, "_result", result)
    monkeypatch.setattr(goal_dispatch.provision, "refresh_base", lambda project: "1a2b3c4d")
    with ThreadPoolExecutor(1) as pool:
        shop.runner = Runner(shop.project, Aside(pool, ended.set))
        shop.tick()
        assert began.wait(30)
        goals.change(shop.project, GOAL, {"success_criteria": (criterion("new"),)})
        shop.tick()  # the daemon sees the change while the former commands run
        may_end.set()
        assert ended.wait(30)
        ended.clear()
        assert (shop.view.goal.status, shop.view.goal.checked) == (GoalStatus.ACTIVE, None)
        clock.now += 1
        shop.tick()
        assert ended.wait(30)
    assert ran == ["old", "new"]
    (question,) = work.open_questions(shop.project)
    assert "`new` failed with exit code 1" in question.reason.question


@pytest.mark.parametrize("how", ["blocked", "overridden", "above"])
def test_what_the_user_blocks_before_a_worker_takes_it_is_not_started(
    shop: Workshop, clock: Clock, how: str
) -> None:
    """Break: only look at the pending instruction in `_hold`; or keep the task when a parent is blocked."""
    shop.tick()
    assert list(shop.tasks()) == ["1"]
    if how == "blocked":
        work.block(shop.project, LEAF, reason="needs the new server")
    else:
        node_id = LEAF if how == "overridden" else "T1.1"
        work.override(shop.project, node_id, status="blocked", reason="needs the new server")
    clock.now += 1
    shop.tick()
    assert (shop.tasks(), shop.take()) == ({}, None)
    for _ in range(2):
        clock.now += 1000
        assert shop.tick().actions == ()
    assert (shop.view.nodes[LEAF].status.is_open, shop.tasks()) == (True, {})
    if how == "above":
        work.follow_again(shop.project, "T1.1", reason="the server is there")
    else:
        work.unblock(shop.project, LEAF, reason="the server is there")
    clock.now += 1
    shop.tick()
    taken = shop.take()
    assert taken is not None
    assert (taken[0].id, shop.one().run_id) == ("2", "2")
    shop.complete(taken[1])
    clock.now += 1
    shop.tick()
    assert shop.view.nodes[LEAF].status is NodeStatus.DONE


def test_what_was_failed_while_it_is_blocked_is_not_tried_again(shop: Workshop, clock: Clock) -> None:
    """A worker that has it may finish; if it returns it, no other one takes it.

    Break: send WITHDRAW only once, when the item is blocked.
    """
    shop.tick()
    taken = shop.take()
    assert taken is not None
    work.block(shop.project, LEAF, reason="needs the new server")
    clock.now += 1
    shop.tick()
    assert shop.source.books().holds(taken[1].id)
    fail(shop, taken[1])
    clock.now += 1
    shop.tick()
    assert (shop.tasks(), shop.take()) == ({}, None)
