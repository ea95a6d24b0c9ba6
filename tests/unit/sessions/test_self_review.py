"""When a self-review is due, and what is left to do about it: pure rules."""

import unicodedata
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from llmc.agents.kinds import event_of
from llmc.attention.rules import self_review_waits
from llmc.base.names import PromptId
from llmc.config.load import check_text
from llmc.config.toml_text import quoted
from llmc.records.hook_events import HookEvent
from llmc.records.transitions import apply, is_allowed, problems, step
from llmc.records.worker import AcceptJournal, Delivery, Outcome, SelfReview, Status, WorkerRecord
from llmc.sessions.rules.decide import Facts, GitFacts, Todo, client_says, failure, judge, todo
from llmc.sessions.rules.prompt_text import normalise
from tests.support.records import BROUGHT, worker

S = Status
NOTHING = GitFacts(head="c0ffee", ahead=0, dirty=False, rebasing=False)
AHEAD = GitFacts(head="c0ffee", ahead=1, dirty=False, rebasing=False)


def delivery(outcome: Outcome, kind: str = "review", then: Status | None = S.REVIEWING) -> Delivery:
    prompt_id = PromptId(f"{kind}-1")
    return Delivery(prompt_id=prompt_id, outcome=outcome, at_unix=1.0, then=then, reason="why not")


def hears(record: WorkerRecord, git: GitFacts, name: str = "Stop", **payload: Any) -> WorkerRecord:
    """The record after one event, as sessions/intake.py applies it."""
    event = HookEvent(
        id="1000000000-1",
        worker="w1",
        instance=record.instance,
        payload={"hook_event_name": name, **payload},
    )
    verdict = judge(record, event_of(event, "claude"), Facts(git=git))
    record = replace(record, **verdict.fields)
    return apply(record, verdict.change, 50.0) if verdict.change else record


def at(status: Status, stage: SelfReview, **fields: Any) -> WorkerRecord:
    return worker(status, self_review=stage, **{"current_prompt": "do it", **fields})


STOPS: dict[str, tuple[WorkerRecord, GitFacts, Status, SelfReview]] = {
    "asked for": (at(S.WORKING, SelfReview.WANTED), AHEAD, S.WORKING, SelfReview.DUE),
    "not asked for": (at(S.WORKING, SelfReview.NO), AHEAD, S.NEEDS_REVIEW, SelfReview.NO),
    "had already": (at(S.WORKING, SelfReview.DONE), AHEAD, S.NEEDS_REVIEW, SelfReview.DONE),
    "nothing committed": (at(S.WORKING, SelfReview.WANTED), NOTHING, S.NEEDS_INPUT, SelfReview.WANTED),
    "after a question": (at(S.NEEDS_INPUT, SelfReview.WANTED), AHEAD, S.WORKING, SelfReview.DUE),
    "after a reject": (at(S.REJECTED, SelfReview.WANTED), AHEAD, S.NEEDS_REVIEW, SelfReview.WANTED),
    "a person's own turn": (
        at(S.WORKING, SelfReview.WANTED, current_prompt=""),
        AHEAD,
        S.NEEDS_REVIEW,
        SelfReview.WANTED,
    ),
    "while it is due": (at(S.WORKING, SelfReview.DUE), AHEAD, S.WORKING, SelfReview.DUE),
    "while it is sent": (
        at(S.WORKING, SelfReview.SENT, delivery=delivery(Outcome.TYPED)),
        AHEAD,
        S.WORKING,
        SelfReview.SENT,
    ),
    "commits dropped while due": (at(S.WORKING, SelfReview.DUE), NOTHING, S.NEEDS_INPUT, SelfReview.WANTED),
    "the review's own": (at(S.REVIEWING, SelfReview.DONE), AHEAD, S.NEEDS_REVIEW, SelfReview.DONE),
    "the review dropped all": (at(S.REVIEWING, SelfReview.DONE), NOTHING, S.NEEDS_INPUT, SelfReview.DONE),
    "in a rebase of its own": (
        at(S.WORKING, SelfReview.WANTED),
        GitFacts(head="c0ffee", ahead=1, dirty=True, rebasing=True),
        S.NEEDS_INPUT,
        SelfReview.WANTED,
    ),
}


@pytest.mark.parametrize(("record", "git", "status", "stage"), STOPS.values(), ids=STOPS.keys())
def test_what_a_stop_means(record: WorkerRecord, git: GitFacts, status: Status, stage: SelfReview) -> None:
    """Break: add `rejected` to _ENDS_A_TASK, or take SENT out of `comes_next`."""
    after = hears(record, git)
    assert (after.status, after.self_review) == (status, stage)
    assert problems(after) == []


def test_the_reasons_say_where_it_stands() -> None:
    """Break: keep the reason of the start in the record."""
    due = hears(at(S.WORKING, SelfReview.WANTED), AHEAD)
    assert due.reason == "self-review is due"
    assert hears(at(S.NEEDS_INPUT, SelfReview.WANTED), AHEAD).reason == "self-review is due"
    assert hears(at(S.REVIEWING, SelfReview.DONE), AHEAD).reason == "self-review done"
    assert failure(delivery(Outcome.REFUSED)) == "self-review refused: why not"
    assert failure(delivery(Outcome.ACKNOWLEDGED, "task")) == "self-review not sent"


@pytest.mark.parametrize("background", [[{"id": "b", "status": "running"}]])
def test_background_work_comes_first(background: list[dict[str, str]]) -> None:
    """Break: ask for the self-review before checking background_tasks."""
    after = hears(at(S.WORKING, SelfReview.WANTED), AHEAD, background_tasks=background)
    assert after.self_review is SelfReview.WANTED


JOURNAL = AcceptJournal(step="rebase", started_unix=1.0, tip="c0ffee")
TODO: dict[str, tuple[WorkerRecord, Todo | None]] = {
    "due": (at(S.WORKING, SelfReview.DUE), Todo.SEND),
    "due, relaunched": (at(S.NEEDS_REVIEW, SelfReview.DUE), Todo.SEND),
    "due, being accepted": (at(S.NEEDS_REVIEW, SelfReview.DUE, accept=JOURNAL), None),
    "due, offline": (at(S.OFFLINE, SelfReview.DUE), None),
    "due, asks": (at(S.NEEDS_INPUT, SelfReview.DUE), None),
    "pending": (at(S.WORKING, SelfReview.SENT, delivery=delivery(Outcome.PENDING)), Todo.DELIVER),
    "typed": (at(S.WORKING, SelfReview.SENT, delivery=delivery(Outcome.TYPED)), Todo.DELIVER),
    "refused": (at(S.WORKING, SelfReview.SENT, delivery=delivery(Outcome.REFUSED)), Todo.GIVE_UP),
    "unconfirmed": (at(S.WORKING, SelfReview.SENT, delivery=delivery(Outcome.UNCONFIRMED)), Todo.GIVE_UP),
    "wanted": (at(S.WORKING, SelfReview.WANTED), None),
    "done": (at(S.WORKING, SelfReview.DONE, delivery=delivery(Outcome.REFUSED)), None),
    "reviewing": (at(S.REVIEWING, SelfReview.DONE), None),
}


@pytest.mark.parametrize(("record", "what"), TODO.values(), ids=TODO.keys())
def test_what_is_left_to_do(record: WorkerRecord, what: Todo | None) -> None:
    """Break: forget one of the ways in which a delivery ends, and the worker is stuck."""
    assert todo(record) is what


@pytest.mark.parametrize(
    ("status", "stage", "held", "accept"), [*product(Status, SelfReview, [False, True], [None, JOURNAL])]
)
def test_the_hot_commands_know_it_too(
    status: Status, stage: SelfReview, held: bool, accept: AcceptJournal | None
) -> None:
    """Break: let self_review_waits (attention/rules.py) and the rule diverge."""
    record = at(status, stage, held=held, accept=accept)
    raw = {"status": str(status), "self_review": str(stage), "held": held, "accept": accept and {}}
    assert self_review_waits(raw) == (todo(record) is not None and not held)


@pytest.mark.parametrize("stage", list(SelfReview))
def test_an_agent_that_waits_for_its_self_review_was_not_interrupted(stage: SelfReview) -> None:
    """Break: leave is_open out of client_says; a held worker would become needs_input after five seconds."""
    found = client_says(at(S.WORKING, stage), is_busy=False, is_idle=True, for_s=60.0)
    assert (found is None) == (stage in (SelfReview.DUE, SelfReview.SENT))


@pytest.mark.parametrize("status", [S.WORKING, S.NEEDS_REVIEW])
def test_a_late_receipt_is_the_self_review(status: Status) -> None:
    """Given up as unconfirmed, it arrives after all. Break: deliver without `then`."""
    record = at(status, SelfReview.DONE, delivery=delivery(Outcome.UNCONFIRMED))
    after = hears(record, AHEAD, "UserPromptSubmit", prompt="[llmc review-1]\nread it\n")
    assert after.status is S.REVIEWING
    assert hears(after, AHEAD).status is S.NEEDS_REVIEW


@pytest.mark.parametrize(("before", "stage"), [*product(Status, SelfReview)])
def test_what_a_step_does_to_it(before: Status, stage: SelfReview) -> None:
    """Break: use one task's self-review for the next one."""
    after = {S.IDLE: SelfReview.NO, S.REVIEWING: SelfReview.DONE, S.REJECTED: SelfReview.DONE}
    for status in Status:
        record = at(before, stage)
        if is_allowed(record, status):
            moved = apply(record, step(status, "because", **BROUGHT.get(status, {})), 50.0)
            assert moved.self_review is after.get(status, stage)


@given(st.text(st.characters(max_codepoint=0x2FF, exclude_categories=["Cs"]), max_size=4))
def test_what_the_configuration_takes_can_be_typed(text: str) -> None:
    """Break: no check of `defaults.self_review.prompt`; the prompt would be refused forever."""
    table = f"[defaults.self_review]\nprompt = {quoted(text)}\n"
    config, problems = check_text(f'[repo]\nsource = "x"\n{table}', "config.toml")
    if config is not None:
        normalise(f"Read it. {config.defaults.self_review.prompt}")
    assert (
        (config is None)
        == bool(problems)
        == any(unicodedata.category(c) == "Cc" and c not in "\t\n\r" for c in text)
    )


EVENTS = st.sampled_from(["stop", "stop without commits", "asks", "busy", "idle", "llmc looks", "message"])
OUTCOMES = st.sampled_from([o for o in Outcome if not o.open])


@given(st.lists(st.tuples(EVENTS, OUTCOMES), max_size=30))
def test_never_twice_and_never_stuck(events: list[tuple[str, Outcome]]) -> None:
    """Whatever happens: one prompt at most, and an idle worker that llmc checks ends up with the user.

    Break: set DONE only when the worker is reviewing.
    """
    record, sent = at(S.WORKING, SelfReview.WANTED), 0
    for name, outcome in [*events, ("stop", Outcome.ACKNOWLEDGED), ("llmc looks", Outcome.REFUSED)]:
        match name:
            case "stop":
                record = hears(record, AHEAD)
            case "stop without commits":
                record = hears(record, NOTHING)
            case "asks":
                record = hears(record, NOTHING, "PermissionRequest", tool_name="AskUserQuestion")
            case "busy" | "idle":
                change = client_says(record, name == "busy", name == "idle", 60.0)
                record = apply(record, change, 50.0) if change else record
            case "message" if record.status in (S.NEEDS_INPUT, S.NEEDS_REVIEW):
                record = apply(record, step(S.WORKING, "message"), 50.0)
            case "llmc looks":
                record, typed = looked_at(record, outcome)
                sent += typed
    assert sent <= 1
    record = hears(record, AHEAD)
    assert record.status is S.NEEDS_REVIEW or record.self_review is SelfReview.DUE
    assert problems(record) == []


def looked_at(record: WorkerRecord, outcome: Outcome) -> tuple[WorkerRecord, int]:
    """As workers/self_review.py does it, with a delivery that ends in `outcome`."""
    if todo(record) is not Todo.SEND:
        return record, 0
    record = replace(record, self_review=SelfReview.SENT, delivery=delivery(outcome))
    if outcome.arrived:
        return apply(record, step(S.REVIEWING, "prompt arrived"), 50.0), 1
    assert todo(record) is Todo.GIVE_UP
    record = replace(record, self_review=SelfReview.DONE)
    if record.status is S.WORKING:
        record = apply(record, step(S.NEEDS_REVIEW, "not sent", commit_sha="c0ffee"), 50.0)
    return record, 1
