"""What an event means for a worker: facts in, at most one step of the state machine out. Pure."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from llmc.agents.agent_events import AgentEvent, What
from llmc.base.names import carries, header_id
from llmc.records import causes
from llmc.records.transitions import Step, is_allowed, step
from llmc.records.worker import BUSY, Delivery, Outcome, Report, SelfReview, Status, WorkerRecord

#: the first word of its prompt's id
KIND = "review"
#: shown while the prompt has not gone out yet
DUE = "self-review is due"
DONE = "self-review done"

#: a worker that stops here with commits has finished its task; `rejected` has not: a person has reviewed it already
_ENDS_A_TASK = (Status.WORKING, Status.NEEDS_INPUT)
#: where a prompt that is due can be sent: `needs_review` after a restart of the agent
_CAN_BE_SENT = (Status.WORKING, Status.NEEDS_REVIEW)


class Todo(Enum):
    """What is left to do about a self-review."""

    #: the prompt is due
    SEND = auto()
    #: llmc was interrupted while it sent it
    DELIVER = auto()
    #: it did not arrive, and the worker still stands where it waited for it
    GIVE_UP = auto()


def comes_next(record: WorkerRecord) -> bool:
    """Whether a worker that stops with commits reads them once more before a person does."""
    waits = record.self_review in (SelfReview.WANTED, SelfReview.DUE, SelfReview.SENT)
    return waits and bool(record.current_prompt) and record.status in _ENDS_A_TASK


def is_open(record: WorkerRecord) -> bool:
    """Whether llmc, and not the agent, has the next move: an agent that rests now was not interrupted."""
    return record.self_review in (SelfReview.DUE, SelfReview.SENT)


def todo(record: WorkerRecord) -> Todo | None:
    if record.status not in _CAN_BE_SENT or record.accept is not None or not is_open(record):
        return None
    if record.self_review is SelfReview.DUE:
        return Todo.SEND
    return Todo.DELIVER if is_on_its_way(record.delivery) else Todo.GIVE_UP


def is_on_its_way(delivery: Delivery | None) -> bool:
    return delivery is not None and delivery.outcome.open and delivery.prompt_id.startswith(f"{KIND}-")


def failure(delivery: Delivery | None) -> str:
    """Why a person gets the work without a self-review."""
    if delivery is None or not delivery.prompt_id.startswith(f"{KIND}-"):
        return "self-review not sent"
    return f"self-review {delivery.outcome}" + (f": {delivery.reason}" if delivery.reason else "")


#: exit codes of an agent that ended as it should; anything else is a crash
NORMAL_EXITS = (0, 130)

#: a day without a crash, and the counter starts again
CRASH_MEMORY_S = 24 * 3600

#: the statuses that the client's status file can put right
CLIENT_CAN_CONTRADICT = (
    Status.WORKING,
    Status.REJECTED,
    Status.REVIEWING,
    Status.NEEDS_INPUT,
    Status.NEEDS_REVIEW,
)
#: how long the client must have been at rest, or busy, before that counts against what its hooks said
INTERRUPTED_AFTER_S = 5.0
BUSY_AFTER_S = 1.0
#: longer than a question takes to be told by its hook
DIALOG_AFTER_S = 3.0
#: turns that may end with conflicts unresolved; the last of them is an error
MAX_ROUNDS = 3

#: more tasks than an agent makes at once; those it failed to make would else pile up
MOST_ANNOUNCED = 50

#: a report with more than this is not kept in full
MOST_REPORTED = 65_536

#: why a worker is `working` on something llmc has no task for
PERSONS_PROMPT = "a prompt llmc did not send"
TURN_GOES_ON = "its turn goes on"
#: why a worker that rests was not ended by a Stop
INTERRUPTED = "interrupted"
#: why a worker needs a person although its agent asked nothing
DIALOG = "dialog"
#: why an agent was ended that is about to be started again
ANOTHER_MODEL = "to be started with another model"
#: why a worker waits for review that was started with commits in its worktree
FOUND_COMMITS = "commits are there"
#: why a worker waits for review though its rebase did not come to anything
ABORTED = "rebase aborted by the worker"
ABORTED_BY_HAND = "rebase aborted by hand"
#: why a worker is in error whose conflicts nobody resolved
CONFLICTS_LEFT = "conflicts not resolved"
#: the prompts that llmc sends about a rebase, by the first word of their id
ABOUT_A_REBASE = ("conflict-", "validation-")


def is_about_a_rebase(delivery: Delivery) -> bool:
    return delivery.prompt_id.startswith(ABOUT_A_REBASE)


class GitFacts(Struct, frozen=True):
    """What git says of a worktree at this moment."""

    head: str
    ahead: int
    dirty: bool
    rebasing: bool
    #: HEAD has the commit that llmc's rebase goes onto
    on_base: bool = True
    #: files of the conflict that still have markers
    marked: tuple[str, ...] = ()


#: of one who works on no branch: its turn ends when it ends, whatever the directory holds
NO_BRANCH = GitFacts(head="", ahead=0, dirty=False, rebasing=False)


class Facts(Struct, frozen=True):
    """What was observed when an event is judged; None where it does not matter or could not be seen."""

    git: GitFacts | None = None
    exit_code: int | None = None
    #: of an end that was told: the agent runs in its pane, or nobody can say, so it may be the end of another pane
    agent_lives: bool = False


class Verdict(Struct, frozen=True):
    """A status change, changed fields, and what to write into the event log."""

    change: Step | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    action: str = "hook_received"
    details: dict[str, Any] = field(default_factory=dict)


_WANT_GIT = (What.TURN_ENDED, What.TURN_FAILED, What.SESSION_STARTED)


def wants_git(event: AgentEvent) -> bool:
    """Whether git has to be asked before this event can be judged."""
    return event.what in _WANT_GIT and not event.from_subagent


def judge(record: WorkerRecord, event: AgentEvent, facts: Facts) -> Verdict:
    """The meaning of one event. Events of an earlier launch of the worker, or of none, mean nothing."""
    if not event.instance or event.instance != record.instance:
        return Verdict(action="hook_ignored", details={"hook": event.name, "why": "of an earlier launch"})
    match event.what:
        case What.SESSION_STARTED:
            return _session_start(record, event, facts)
        case What.PROMPT_ARRIVED:
            return _prompt(record, event)
        case What.TURN_ENDED if not event.from_subagent:
            return _stop(record, event, facts)
        case What.TURN_FAILED if not event.from_subagent:
            return _stop_failure(record, event, facts)
        case What.DIALOG_OPENED:
            return _question(record, event)
        case What.SESSION_ENDED:
            return Verdict(action="session_ended", details={"end": event.end})
        case What.TASK_ANNOUNCED:
            announced = (*record.announced_tasks, event.at_unix)[-MOST_ANNOUNCED:]
            return Verdict(fields={"announced_tasks": announced}, details={"hook": event.name})
        case What.TASK_MADE:
            left = record.announced_tasks[1:]
            return Verdict(fields={"announced_tasks": left}, details={"hook": event.name})
        case What.REPORTED:
            return _report(event)
        case What.EXITED:
            return _exited(record, event, facts)
        case _:
            return Verdict(details={"hook": event.name})


def client_says(
    record: WorkerRecord, is_busy: bool, is_idle: bool, for_s: float, *, is_waiting: bool = False
) -> Step | None:
    """What the client's own status file adds to its hooks, once it has said so for a while.

    Esc fires no hook: a worker whose agent rests without a Stop was interrupted. A question that was answered, or
    a queued message that begins a turn of its own, fires none either: then it is at work again. And a dialog that the
    client opens by itself in the middle of a task waits for a person; auto mode looks for those of its own workers.
    """
    if is_waiting and record.status in BUSY and for_s >= DIALOG_AFTER_S and record.assignment is None:
        return step(Status.NEEDS_INPUT, DIALOG)
    if is_idle and record.status in BUSY and for_s >= INTERRUPTED_AFTER_S and not is_open(record):
        return step(Status.NEEDS_INPUT, INTERRUPTED)
    resting = record.status in (Status.NEEDS_INPUT, Status.NEEDS_REVIEW) and record.accept is None
    if is_busy and resting and for_s >= BUSY_AFTER_S:
        return step(Status.WORKING, TURN_GOES_ON)
    return None


def rest(record: WorkerRecord, git: GitFacts) -> Step:
    """Where a worker with a living but resting agent belongs, from git alone."""
    if git.rebasing:
        return step(Status.REBASING, "rebase in progress")
    if record.validation_due:
        return step(Status.REBASING, "to be validated")
    if git.ahead:
        return step(Status.NEEDS_REVIEW, FOUND_COMMITS, commit_sha=git.head)
    if record.current_prompt:
        return step(Status.NEEDS_INPUT, "restarted")
    return step(Status.IDLE, "ready")


def _session_start(record: WorkerRecord, event: AgentEvent, facts: Facts) -> Verdict:
    fields: dict[str, Any] = {}
    if event.session:
        fields["claude_session_id"] = event.session
    if event.transcript:
        fields["transcript_path"] = event.transcript
    details = {"source": event.source, "claude_session_id": event.session}
    change = None
    if record.status is Status.OFFLINE and facts.git is not None:
        change = rest(record, facts.git)
        if change.to is Status.REBASING and record.pre_rebase_sha and facts.git.rebasing:
            fields["conflict_prompt_due"] = True  # its turn ended with its process
    return Verdict(change, fields, "session_started", details)


def _prompt(record: WorkerRecord, event: AgentEvent) -> Verdict:
    """The agent says that a prompt arrived. With our id it completes a delivery nobody waited for any more."""
    text, delivery = event.prompt, record.delivery
    if delivery is None or not carries(text, delivery.prompt_id):
        earlier = header_id(text)
        if earlier is None:
            return Verdict(_person_began(record), action="prompt_seen")
        return Verdict(action="prompt_seen", details={"prompt_id": earlier})
    arrived = delivery.prompt_id
    if delivery.outcome.arrived:
        return Verdict(details={"hook": event.name, "prompt_id": arrived})
    done = replace(delivery, outcome=Outcome.ACKNOWLEDGED, text="", reason="late receipt")
    change = arrived_step(record, "late receipt")
    details = {"prompt_id": arrived, "outcome": Outcome.ACKNOWLEDGED, "late": True}
    return Verdict(change, {"delivery": done}, "prompt_delivered", details)


def arrived_step(record: WorkerRecord, reason: str) -> Step | None:
    """The status a worker enters because its prompt has arrived; None when it is there already."""
    delivery = record.delivery
    then = delivery.then if delivery else None
    if delivery is None or then is None or then is record.status or not is_allowed(record, then):
        return None
    if record.status is Status.ERROR:  # only what was said since ends it, not the prompt that led to it
        return said_in_error(record) if delivery.at_unix >= record.since_unix else None
    return step(then, reason)


def said_in_error(record: WorkerRecord) -> Step:
    """A person gave a worker in error something to do: its rebase, if one is open, goes on as one of llmc's."""
    if record.pre_rebase_sha:
        return step(Status.REBASING, PERSONS_PROMPT, resolution_attempts=0, conflict_prompt_due=False)
    return step(Status.WORKING, PERSONS_PROMPT)


def _person_began(record: WorkerRecord) -> Step | None:
    """A person (or a background task's notice) gave the agent something to do."""
    if record.status is Status.ERROR:
        return said_in_error(record)
    if record.status in (Status.IDLE, Status.NEEDS_INPUT, Status.NO_CHANGES):
        return step(Status.WORKING, PERSONS_PROMPT)
    return None


def _stop(record: WorkerRecord, event: AgentEvent, facts: Facts) -> Verdict:
    if facts.git is None:
        return Verdict(details={"hook": event.name, "why": "git could not be read"})
    git = facts.git
    details = {"ahead": git.ahead, "dirty": git.dirty, "background": event.background_running}
    if record.status is Status.NEEDS_REVIEW and git.ahead and not git.rebasing and record.accept is None:
        # A turn that a person began by hand: what waits for review is what is there now.
        return Verdict(fields={"commit_sha": git.head}, action="agent_stopped", details=details)
    if record.status not in (*BUSY, Status.NEEDS_INPUT, Status.REBASING):
        return Verdict(action="agent_stopped", details=details)
    if event.background_running:
        since = event.at_unix if event.only_shells_running else 0.0
        return Verdict(None, {"background_since_unix": since}, "agent_stopped", details)
    return turn_ended(record, git, details, event.at_unix)


def turn_ended(record: WorkerRecord, git: GitFacts, details: dict[str, Any], at_unix: float) -> Verdict:
    """A turn is over and nothing of it runs any more: where that leaves the worker."""
    if record.status is Status.REBASING and record.pre_rebase_sha:
        told_later = bool(record.validation_output) and record.conflict_prompt_due
        if at_unix < record.rebase_started_at_unix or told_later:
            return Verdict(action="agent_stopped", details=details)
        return after_round(record, git, details)
    if git.ahead and not git.rebasing and comes_next(record):
        return _self_review_due(record, {**details, "self_review": SelfReview.DUE})
    change = after_stop(record, git)
    fields: dict[str, Any] = {}
    if change is None and record.status is Status.NEEDS_INPUT:
        fields = {"reason": _stopped(git)}  # the question, if it was one, is answered
    if record.self_review is SelfReview.DUE and not git.ahead:
        fields["self_review"] = SelfReview.WANTED  # its commits are gone again
    return Verdict(change, fields, "agent_stopped", details)


def _self_review_due(record: WorkerRecord, details: dict[str, Any]) -> Verdict:
    """The intent; who looks at the worker next sends the prompt. A Stop before that changes nothing."""
    fields: dict[str, Any] = {}
    if record.self_review is SelfReview.WANTED:
        fields = {"self_review": SelfReview.DUE, "reason": DUE}
    change = step(Status.WORKING, DUE) if record.status is Status.NEEDS_INPUT else None
    return Verdict(change, fields, "agent_stopped", details)


def _report(event: AgentEvent) -> Verdict:
    """A report changes no status by itself: it says what the Stop that follows means."""
    said = Report(
        kind=_text(event.told, "kind"),
        text=_text(event.told, "text"),
        at_unix=event.at_unix,
        no_changes=event.told.get("no_changes") is True,
    )
    details: dict[str, Any] = {"kind": said.kind, "text": said.text}
    more = event.told.get("update")
    if isinstance(more, dict) and len(str(more)) <= MOST_REPORTED:
        details["update"] = more
    if message_id := _text(event.told, "message_id"):
        details["message_id"] = message_id[:100]
    return Verdict(None, {"report": said}, "agent_reported", details)


def _text(told: Mapping[str, Any], key: str) -> str:
    value = told.get(key)
    return value if isinstance(value, str) else ""


def after_round(record: WorkerRecord, git: GitFacts, details: dict[str, Any]) -> Verdict:
    """What became of a rebase with conflicts that the agent was told to resolve; git alone says so."""
    if not git.rebasing and git.head == record.pre_rebase_sha:
        aborted = step(Status.NEEDS_REVIEW, ABORTED, commit_sha=git.head)
        return Verdict(aborted, action="rebase_aborted", details=details)
    left = unresolved(git)
    if not left and record.validate_rebase:
        due = {"validation_due": True, "validation_output": "", "conflict_prompt_due": False}
        return Verdict(None, due, "rebase_resolved", details)
    if not left:
        resolved = step(Status.NEEDS_REVIEW, "conflicts resolved", commit_sha=git.head)
        return Verdict(resolved, action="rebase_resolved", details=details)
    if record.delivery is not None and not is_about_a_rebase(record.delivery):
        # A person talks with it: that is no round, and the person sees what it does.
        return Verdict(action="agent_stopped", details=details)
    rounds = record.resolution_attempts + 1
    fields: dict[str, Any] = {
        "resolution_attempts": rounds,
        "conflict_prompt_due": rounds < MAX_ROUNDS,
        "validation_output": "",
    }
    if rounds < MAX_ROUNDS:
        return Verdict(None, fields, "rebase_unresolved", {**details, "left": left, "round": rounds})
    text = f"its conflicts are unresolved after {rounds} rounds: {'; '.join(left)}"
    failed = step(Status.ERROR, CONFLICTS_LEFT, error_reason=text[:500], cause=causes.Cause.GIT)
    return Verdict(failed, fields, "rebase_unresolved", {**details, "left": left, "round": rounds})


def after_validation(record: WorkerRecord, head: str, code: int, output: str) -> Verdict:
    """What a validation of rebased work means; `code` 0 is a success, `output` the end of what it said.

    What the worker itself resolved goes back to it, at most MAX_ROUNDS times. After a clean rebase there is nothing
    of its doing to correct, and the default branch may be what is broken: that is left to a person.
    """
    clean = not record.conflicted_files
    since = {"since_unix": record.since_unix} if clean else {}
    if code == 0:
        reason = "rebased" if clean else "conflicts resolved"
        return Verdict(step(Status.NEEDS_REVIEW, reason, commit_sha=head, **since), action="rebase_validated")
    if clean:
        waits = step(Status.NEEDS_REVIEW, "rebased, but its validation fails", commit_sha=head, **since)
        return Verdict(waits, action="validation_failed", details={"code": code, "round": 0})
    rounds = record.resolution_attempts + 1
    details = {"code": code, "round": rounds}
    fields = {"resolution_attempts": rounds, "validation_due": False}
    if rounds < MAX_ROUNDS:
        told = {"validation_output": output or "(it printed nothing)", "conflict_prompt_due": True}
        return Verdict(None, fields | told, "validation_failed", details)
    text = f"its validation fails after {rounds} rounds of conflicts: {output.strip()[-400:]}"
    failed = step(
        Status.ERROR,
        "validation fails after the rebase",
        error_reason=text,
        cause=causes.Cause.COMMAND,
        failed_sha=head,
    )
    return Verdict(failed, fields, "validation_failed", details)


def by_hand(record: WorkerRecord, git: GitFacts) -> Step | None:
    """The way out of an error over a rebase: git shows that a person finished or aborted it in the worktree.

    What failed its validation and is still the same is no one's resolution.
    """
    if record.status is not Status.ERROR or not record.pre_rebase_sha or git.rebasing or not git.ahead:
        return None
    if git.head == record.pre_rebase_sha:
        return step(Status.NEEDS_REVIEW, ABORTED_BY_HAND, commit_sha=git.head)
    if unresolved(git) or git.head == record.failed_sha:
        return None
    return step(Status.NEEDS_REVIEW, "conflicts resolved by hand", commit_sha=git.head)


def still_unresolved(record: WorkerRecord, git: GitFacts) -> str:
    """What keeps it in error now, where the reason beside it is of another time; "" where that still holds."""
    left = unresolved(git)
    told = f"its conflicts are unresolved: {'; '.join(left)}"[:500]
    is_ours = record.status is Status.ERROR and record.reason == CONFLICTS_LEFT
    return told if is_ours and left and not record.error_reason.endswith("; ".join(left)) else ""


def unresolved(git: GitFacts) -> list[str]:
    """What keeps a rebase from being resolved, in words; empty when it is."""
    found = []
    if git.rebasing:
        found.append("the rebase is still in progress")
    elif not git.on_base:
        found.append("HEAD is not on top of the default branch")
    if git.marked:
        found.append(f"conflict markers are left in {', '.join(git.marked[:5])}")
    if git.dirty and not git.rebasing:
        found.append("there are uncommitted changes")
    return found


#: reasons of a worker whose turn ended without a commit that could be reviewed
STOPPED = ("stopped_clean", "stopped_dirty", "stopped_rebasing")


def _stopped(git: GitFacts) -> str:
    if git.rebasing:
        return "stopped_rebasing"
    return "stopped_dirty" if git.dirty else "stopped_clean"


def after_stop(record: WorkerRecord, git: GitFacts) -> Step | None:
    """Where a worker belongs whose agent has ended its turn; None when it stays where it is."""
    if git.rebasing:  # its own; one of ours has a status, and rounds
        return step(Status.NEEDS_INPUT, _stopped(git)) if record.status in BUSY else None
    if git.ahead:
        reviewed = record.status is Status.REVIEWING
        reason = DONE if reviewed else "stopped with commits"
        return step(Status.NEEDS_REVIEW, reason, commit_sha=git.head)
    said = record.report
    if said is not None and said.no_changes and not git.dirty and is_allowed(record, Status.NO_CHANGES):
        return step(Status.NO_CHANGES, said.text)
    if record.status in (Status.NEEDS_INPUT, Status.REBASING):
        return None
    if said is not None and said.kind == "blocked":
        return step(Status.NEEDS_INPUT, "blocked", error_reason=said.text)
    if not record.current_prompt and not git.dirty:
        return step(Status.IDLE, "a person's own turn ended")
    return step(Status.NEEDS_INPUT, _stopped(git))


def _stop_failure(record: WorkerRecord, event: AgentEvent, facts: Facts) -> Verdict:
    error, cause = event.error, event.cause
    text = event.last_words[:500] or error
    details = {"error": error, "cause": cause}
    change = None
    fields: dict[str, Any] = {}
    # Who answers a question leaves no trace here, so a turn may go on and fail in needs_input, too.
    at_work = record.status in (*BUSY, Status.REBASING, Status.NEEDS_INPUT)
    if causes.needs_a_person(cause) and at_work:
        change = step(Status.ERROR, error, error_reason=text, cause=cause)
    elif record.status in BUSY:
        change = step(Status.NEEDS_INPUT, cause, error_reason=text, cause=cause)
    elif (
        record.status is Status.REBASING and record.assignment is not None and causes.passes_by_itself(cause)
    ):
        # Its rebase stays open; auto mode tells it of its conflicts again once the limit is over.
        fields = {"error_reason": text, "cause": cause, "since_unix": event.at_unix}
    return Verdict(change, fields, "agent_failed", details)


def _question(record: WorkerRecord, event: AgentEvent) -> Verdict:
    asked = event.asked
    reason = "question" if event.is_question else "permission"
    change = step(Status.NEEDS_INPUT, reason) if record.status in BUSY else None
    fields: dict[str, Any] = {"asked": asked}
    if record.status is Status.NEEDS_INPUT:  # the one before was answered, of which no hook tells
        fields["reason"] = reason
    return Verdict(
        change, fields, "agent_asked", {"tool": asked.tool, "question": asked.text[:500]} if asked else {}
    )


def tells_an_end(record: WorkerRecord, event: AgentEvent, facts: Facts) -> bool:
    """Whether an event means that the worker's agent has ended."""
    is_live = bool(record.instance) and event.instance == record.instance
    return is_live and event.what is What.EXITED and not _is_of_another_pane(record, event, facts)


def _is_of_another_pane(record: WorkerRecord, event: AgentEvent, facts: Facts) -> bool:
    """Sessions of an older llmc tell the end of each of their panes, and do not say of which."""
    told = _text(event.told, "pane")
    if told and record.pane_id:
        return told != record.pane_id
    return facts.agent_lives


def _exited(record: WorkerRecord, event: AgentEvent, facts: Facts) -> Verdict:
    if _is_of_another_pane(record, event, facts):
        return Verdict(action="hook_ignored", details={"hook": event.name, "why": "of another pane"})
    code = facts.exit_code
    details = {"exit_code": code}
    if record.status is Status.OFFLINE:
        return Verdict(action="agent_exited", details=details)
    if code in NORMAL_EXITS:
        gone = step(Status.OFFLINE, "exited") if record.status is not Status.ERROR else None
        return Verdict(gone, action="agent_exited", details=details)
    text = (
        f"the agent's process ended with code {code}" if code is not None else "the agent's process vanished"
    )
    earlier = record.crash_count if event.at_unix - record.last_crash_unix < CRASH_MEMORY_S else 0
    fields = {"crash_count": earlier + 1, "last_crash_unix": event.at_unix}
    if record.status is Status.ERROR:
        return Verdict(None, fields, "agent_exited", details)
    crashed = step(Status.OFFLINE, "crashed", error_reason=text, cause=causes.Cause.CRASH)
    return Verdict(crashed, fields, "agent_exited", details)
