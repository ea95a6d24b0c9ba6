"""Decides what an event means for a worker: facts in; at most one transition out. Pure."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from llmc.agents.agent_events import AgentEvent, What
from llmc.attention.rules import ABORTED, CONFLICTS_LEFT, VALIDATION_FAILS
from llmc.base.names import carries, header_id
from llmc.base.text import some_files
from llmc.records.hook_events import Malformed
from llmc.records.transitions import Step, is_allowed, step
from llmc.records.worker import Cause, Delivery, Outcome, Report, SelfReview, Status, WorkerRecord

#: the prefix of a self-review's prompt ids
KIND = "review"
#: the status reason until the prompt is sent
DUE = "self-review is due"
DONE = "self-review done"

#: stopping with commits in these statuses finishes the task; not in `rejected`, which the user has reviewed
_ENDS_A_TASK = (Status.WORKING, Status.NEEDS_INPUT)
#: where a due prompt can be sent; `needs_review`: after a restart of the agent
_CAN_BE_SENT = (Status.WORKING, Status.NEEDS_REVIEW)


class Todo(Enum):
    """The next step of a self-review."""

    #: the prompt is due
    SEND = auto()
    #: llmc was interrupted while sending the prompt
    DELIVER = auto()
    #: the prompt was not delivered, and the worker still waits for it
    GIVE_UP = auto()


def comes_next(record: WorkerRecord) -> bool:
    """Whether a worker that stops with commits reviews them before the user does."""
    waits = record.self_review in (SelfReview.WANTED, SelfReview.DUE, SelfReview.SENT)
    return waits and bool(record.current_prompt) and record.status in _ENDS_A_TASK


def is_open(record: WorkerRecord) -> bool:
    """Whether the next step is llmc's, not the agent's, so that an idle agent does not count as interrupted."""
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
    """Why the user reviews the work without a self-review."""
    if delivery is None or not delivery.prompt_id.startswith(f"{KIND}-"):
        return "self-review not sent"
    return f"self-review {delivery.outcome}" + (f": {delivery.reason}" if delivery.reason else "")


#: exit codes of an agent that ended normally; anything else is a crash
NORMAL_EXITS = (0, 130)

#: after a day without a crash the counter starts over
CRASH_MEMORY_S = 24 * 3600

#: the statuses that the client's status file can correct
CLIENT_CAN_CONTRADICT = (
    Status.WORKING,
    Status.REJECTED,
    Status.REVIEWING,
    Status.NEEDS_INPUT,
    Status.NEEDS_REVIEW,
)
#: how long the client must be idle, or busy, before that overrides its hooks
INTERRUPTED_AFTER_S = 5.0
BUSY_AFTER_S = 1.0
#: longer than the hook of a question takes to arrive
DIALOG_AFTER_S = 3.0
#: how long an agent must be idle before a start that no hook reported counts; a hook sender gives up sooner
STARTED_AFTER_S = 5.0
#: how long an event waits for git; then it is judged without git, so that it does not hold up the events after it
GIT_PATIENCE_S = 30.0
#: turns that may end with unresolved conflicts; the last of them is an error
MAX_ROUNDS = 3

#: most announcements kept, more than an agent makes at once: failed ones would otherwise pile up
MOST_ANNOUNCED = 50

#: longer reports are truncated
MOST_REPORTED = 65_536
MOST_KIND = 100

#: why a worker is `working` without a task from llmc
PERSONS_PROMPT = "a prompt llmc did not send"
TURN_GOES_ON = "its turn continues"
#: why a worker is idle without a Stop
INTERRUPTED = "interrupted"
#: why a worker needs input although its agent asked nothing
DIALOG = "dialog"
#: why an agent was stopped, just before it is restarted
ANOTHER_MODEL = "restarting with another model"
#: why a worker is in review after it was started with commits in its worktree
FOUND_COMMITS = "commits found"
#: why a worker is in review although its rebase did not finish, as with ABORTED
ABORTED_BY_HAND = "rebase aborted by hand"
#: prefixes of the prompt ids that are about a rebase
ABOUT_A_REBASE = ("conflict-", "validation-")


def is_about_a_rebase(delivery: Delivery) -> bool:
    return delivery.prompt_id.startswith(ABOUT_A_REBASE)


class GitFacts(Struct, frozen=True):
    """Git facts of a worktree."""

    head: str
    ahead: int
    dirty: bool
    rebasing: bool
    #: HEAD contains the commit that llmc rebases onto
    on_base: bool = True
    #: conflicted files that still have markers
    marked: tuple[str, ...] = ()


#: for an agent without a branch: its turn ends regardless of the files
NO_BRANCH = GitFacts(head="", ahead=0, dirty=False, rebasing=False)


class Facts(Struct, frozen=True):
    """Facts for judging an event; None if irrelevant or unknown."""

    git: GitFacts | None = None
    exit_code: int | None = None
    #: for an exit event: the agent may still run in its pane, so the event may be about another pane
    agent_lives: bool = False
    #: how often the fleet was told to continue after a limit
    resumes: int = 0


#: the event log's name for an event that changes nothing
IGNORED = "hook_ignored"


class Verdict(Struct, frozen=True):
    """A status change, changed fields, and the event to log."""

    change: Step | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    action: str = "hook_received"
    details: dict[str, Any] = field(default_factory=dict)


_WANT_GIT = (What.TURN_ENDED, What.TURN_FAILED, What.SESSION_STARTED)


def wants_git(event: AgentEvent) -> bool:
    """Whether judging this event needs git facts."""
    return event.what in _WANT_GIT and not event.from_subagent


def waits_for_git(record: WorkerRecord, event: AgentEvent, facts: Facts, now: float) -> bool:
    """Whether an event stays in the inbox for now, because git did not answer what it means."""
    is_live = bool(record.instance) and event.instance == record.instance
    return facts.git is None and is_live and wants_git(event) and 0 <= now - event.at_unix < GIT_PATIENCE_S


def judge(record: WorkerRecord, event: AgentEvent, facts: Facts) -> Verdict:
    """Judge one event. Events of an earlier launch, or of none, are ignored."""
    if not event.instance or event.instance != record.instance:
        return Verdict(action=IGNORED, details={"hook": event.name, "why": "from an earlier launch"})
    match event.what:
        case What.SESSION_STARTED if event.transcript and not is_in_its_home(record, event):
            why = "the conversation is not in the agent's configuration directory"
            return Verdict(action=IGNORED, details={"hook": event.name, "why": why})
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
            announced = _with(record.announced_tasks, event.at_unix)
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


def unreadable(record: WorkerRecord, event: Malformed) -> Verdict:
    """Judge a hook that cannot be read: it may have announced a task. Naming another one does not settle that."""
    unread = _with(record.unread_hooks, event.at_unix)
    return Verdict(fields={"unread_hooks": unread}, action=IGNORED, details={"why": event.problem})


def _with(times: tuple[float, ...], at_unix: float) -> tuple[float, ...]:
    return (*times, at_unix)[-MOST_ANNOUNCED:]


def client_says(
    record: WorkerRecord, is_busy: bool, is_idle: bool, for_s: float, *, is_waiting: bool = False
) -> Step | None:
    """The transition that the client's status calls for, once that status has lasted for a while.

    Esc fires no hook: a worker whose agent is idle without a Stop was interrupted. An answered question, or a queued
    message that starts its own turn, fires none either: the worker is working again. A dialog that the client opens
    on its own in the middle of a task waits for the user; auto mode handles the dialogs of its own workers.
    """
    if is_waiting and record.status.is_busy and for_s >= DIALOG_AFTER_S and record.assignment is None:
        return step(Status.NEEDS_INPUT, DIALOG)
    if is_idle and record.status.is_busy and for_s >= INTERRUPTED_AFTER_S and not is_open(record):
        return step(Status.NEEDS_INPUT, INTERRUPTED)
    resting = record.status in (Status.NEEDS_INPUT, Status.NEEDS_REVIEW) and record.accept is None
    if is_busy and resting and for_s >= BUSY_AFTER_S:
        return step(Status.WORKING, TURN_GOES_ON)
    return None


def has_started_unheard(record: WorkerRecord, is_idle: bool, for_s: float) -> bool:
    """Whether the agent of a launch is ready although no hook said so: its SessionStart was lost."""
    launched = record.status is Status.OFFLINE and bool(record.instance)
    return launched and is_idle and for_s >= STARTED_AFTER_S


def rest(record: WorkerRecord, git: GitFacts) -> Step:
    """The status of a worker with an idle agent, from git alone."""
    if git.rebasing:
        return step(Status.REBASING, "rebase in progress")
    if record.validation_due:
        return step(Status.REBASING, "waiting for validation")
    if git.ahead:
        return step(Status.NEEDS_REVIEW, FOUND_COMMITS, commit_sha=git.head)
    if record.current_prompt:
        return step(Status.NEEDS_INPUT, "restarted")
    return step(Status.IDLE, "ready")


def is_in_its_home(record: WorkerRecord, event: AgentEvent) -> bool:
    """Whether llmc may read, and perhaps copy, the conversation: a contained agent must not name another file."""
    return event.home == record.config_dir or not record.contained


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
    """The agent confirms a prompt. With our id, it completes an unconfirmed delivery."""
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
    """The transition when a prompt is confirmed; None if the worker is already in that status."""
    delivery = record.delivery
    then = delivery.then if delivery else None
    if delivery is None or then is None or then is record.status or not is_allowed(record, then):
        return None
    if record.status is Status.ERROR:  # only a later prompt ends the error, not the one that caused it
        return said_in_error(record) if delivery.at_unix >= record.since_unix else None
    return step(then, reason)


def said_in_error(record: WorkerRecord) -> Step:
    """The user sent work to a worker in error: an open rebase continues as one of llmc's."""
    if record.pre_rebase_sha:
        return step(Status.REBASING, PERSONS_PROMPT, resolution_attempts=0, conflict_prompt_due=False)
    return step(Status.WORKING, PERSONS_PROMPT)


def _person_began(record: WorkerRecord) -> Step | None:
    """The transition after the user, or the notice of a background task, gave the agent work."""
    if record.status is Status.ERROR:
        return said_in_error(record)
    if record.status in (Status.IDLE, Status.NEEDS_INPUT, Status.NO_CHANGES):
        return step(Status.WORKING, PERSONS_PROMPT)
    return None


def _stop(record: WorkerRecord, event: AgentEvent, facts: Facts) -> Verdict:
    if facts.git is None:
        return Verdict(details={"hook": event.name, "why": "the worktree could not be read"})
    git = facts.git
    details = {"ahead": git.ahead, "dirty": git.dirty, "background": event.background_running}
    if record.status is Status.NEEDS_REVIEW and git.ahead and not git.rebasing and record.accept is None:
        # The user started the turn: the current commits are in review.
        return Verdict(fields={"commit_sha": git.head}, action="agent_stopped", details=details)
    if not record.status.is_under_way:
        return Verdict(action="agent_stopped", details=details)
    if event.background_running:
        since = event.at_unix if event.only_shells_running else 0.0
        return Verdict(None, {"background_since_unix": since}, "agent_stopped", details)
    return turn_ended(record, git, details, event.at_unix)


def turn_ended(record: WorkerRecord, git: GitFacts, details: dict[str, Any], at_unix: float) -> Verdict:
    """The status of a worker after its turn has ended and none of its processes is running."""
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
        fields = {"reason": _stopped(git)}  # a question, if any, is answered
    if record.self_review is SelfReview.DUE and not git.ahead:
        fields["self_review"] = SelfReview.WANTED  # its commits are gone
    return Verdict(change, fields, "agent_stopped", details)


def _self_review_due(record: WorkerRecord, details: dict[str, Any]) -> Verdict:
    """Record the intent; the next check of the worker sends the prompt. A Stop before that changes nothing."""
    fields: dict[str, Any] = {}
    if record.self_review is SelfReview.WANTED:
        fields = {"self_review": SelfReview.DUE, "reason": DUE}
    change = step(Status.WORKING, DUE) if record.status is Status.NEEDS_INPUT else None
    return Verdict(change, fields, "agent_stopped", details)


def _report(event: AgentEvent) -> Verdict:
    """A report does not change the status: it says what the next Stop means."""
    said = Report(
        kind=_text(event.told, "kind")[:MOST_KIND],
        text=_text(event.told, "text")[:MOST_REPORTED],
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
    """The outcome of a rebase whose conflicts the agent was asked to resolve, from git alone."""
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
        # The user is talking to the agent, so this turn does not count as a round.
        return Verdict(action="agent_stopped", details=details)
    rounds = record.resolution_attempts + 1
    fields: dict[str, Any] = {
        "resolution_attempts": rounds,
        "conflict_prompt_due": rounds < MAX_ROUNDS,
        "validation_output": "",
    }
    if rounds < MAX_ROUNDS:
        return Verdict(None, fields, "rebase_unresolved", {**details, "left": left, "round": rounds})
    text = f"conflicts still unresolved after {rounds} rounds: {'; '.join(left)}"
    failed = step(Status.ERROR, CONFLICTS_LEFT, error_reason=text[:500], cause=Cause.GIT)
    return Verdict(failed, fields, "rebase_unresolved", {**details, "left": left, "round": rounds})


def after_validation(record: WorkerRecord, head: str, code: int, output: str) -> Verdict:
    """Judge the validation of rebased work; `code` 0 is success, `output` the end of its output.

    If the worker resolved conflicts, it gets the failure to fix; a failure in round MAX_ROUNDS is an error. After a
    clean rebase, the default branch may be broken, so the user decides.
    """
    clean = not record.conflicted_files
    since = {"since_unix": record.since_unix} if clean else {}
    if code == 0:
        reason = "rebased" if clean else "conflicts resolved"
        return Verdict(step(Status.NEEDS_REVIEW, reason, commit_sha=head, **since), action="rebase_validated")
    if clean:
        waits = step(Status.NEEDS_REVIEW, "rebased, but fails validation", commit_sha=head, **since)
        return Verdict(waits, action="validation_failed", details={"code": code, "round": 0})
    rounds = record.resolution_attempts + 1
    details = {"code": code, "round": rounds}
    fields = {"resolution_attempts": rounds, "validation_due": False}
    if rounds < MAX_ROUNDS:
        told = {"validation_output": output or "(no output)", "conflict_prompt_due": True}
        return Verdict(None, fields | told, "validation_failed", details)
    text = f"validation still fails after {rounds} rounds: {output.strip()[-400:]}"
    failed = step(
        Status.ERROR,
        VALIDATION_FAILS,
        error_reason=text,
        cause=Cause.COMMAND,
        failed_sha=head,
    )
    return Verdict(failed, fields, "validation_failed", details)


def by_hand(record: WorkerRecord, git: GitFacts) -> Step | None:
    """Leave an error over a rebase, once git shows that the user finished or aborted it in the worktree.

    Unchanged work that failed its validation does not count.
    """
    if record.status is not Status.ERROR or not record.pre_rebase_sha or git.rebasing or not git.ahead:
        return None
    if git.head == record.pre_rebase_sha:
        return step(Status.NEEDS_REVIEW, ABORTED_BY_HAND, commit_sha=git.head)
    if unresolved(git) or git.head == record.failed_sha:
        return None
    return step(Status.NEEDS_REVIEW, "conflicts resolved by hand", commit_sha=git.head)


def still_unresolved(record: WorkerRecord, git: GitFacts) -> str:
    """Why the worker is in error now, if the recorded reason is outdated; "" if that reason still holds."""
    left = unresolved(git)
    told = f"conflicts still unresolved: {'; '.join(left)}"[:500]
    is_ours = record.status is Status.ERROR and record.reason == CONFLICTS_LEFT
    return told if is_ours and left and not record.error_reason.endswith("; ".join(left)) else ""


def unresolved(git: GitFacts) -> list[str]:
    """What a rebase still lacks to be resolved; empty if it is resolved."""
    found = []
    if git.rebasing:
        found.append("rebase still in progress")
    elif not git.on_base:
        found.append("HEAD is not on top of the default branch")
    if git.marked:
        found.append(f"conflict markers left in {some_files(git.marked)}")
    if git.dirty and not git.rebasing:
        found.append("uncommitted changes")
    return found


#: reasons of a worker whose turn ended without a commit to review
STOPPED = ("stopped_clean", "stopped_dirty", "stopped_rebasing")


def _stopped(git: GitFacts) -> str:
    if git.rebasing:
        return "stopped_rebasing"
    return "stopped_dirty" if git.dirty else "stopped_clean"


def after_stop(record: WorkerRecord, git: GitFacts) -> Step | None:
    """The transition after the end of a turn; None if the status stays."""
    if git.rebasing:  # the agent's own rebase; one of llmc's has its own status and rounds
        return step(Status.NEEDS_INPUT, _stopped(git)) if record.status.is_busy else None
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
        return step(Status.IDLE, "finished a prompt that was not a task")
    return step(Status.NEEDS_INPUT, _stopped(git))


def _stop_failure(record: WorkerRecord, event: AgentEvent, facts: Facts) -> Verdict:
    error, cause = event.error, event.cause
    text = event.last_words[:500] or error
    details = {"error": error, "cause": cause}
    change = None
    fields: dict[str, Any] = {}
    # The message may name a time without its day. Without a daemon, the event waits in the inbox.
    stopped = {
        "error_reason": text,
        "cause": cause,
        "since_unix": event.at_unix,
        "stopped_after": facts.resumes,
    }
    # An answered question leaves no trace here, so a turn may also fail in needs_input.
    at_work = record.status.is_under_way
    if cause.needs_a_person and at_work:
        change = step(Status.ERROR, error, error_reason=text, cause=cause)
    elif record.status.is_busy:
        change = step(Status.NEEDS_INPUT, cause, **stopped)
    elif record.status is Status.REBASING and record.assignment is not None and cause.passes_by_itself:
        # The rebase stays open; auto mode sends the conflicts again once the limit is over.
        fields = stopped
    return Verdict(change, fields, "agent_failed", details)


def _question(record: WorkerRecord, event: AgentEvent) -> Verdict:
    asked = event.asked
    reason = "question" if event.is_question else "permission"
    change = step(Status.NEEDS_INPUT, reason) if record.status.is_busy else None
    fields: dict[str, Any] = {"asked": asked}
    if record.status is Status.NEEDS_INPUT:  # the previous question was answered, which fires no hook
        fields["reason"] = reason
    return Verdict(
        change, fields, "agent_asked", {"tool": asked.tool, "question": asked.text[:500]} if asked else {}
    )


def tells_an_end(record: WorkerRecord, event: AgentEvent, facts: Facts) -> bool:
    """Whether an event means that the worker's agent has ended."""
    is_live = bool(record.instance) and event.instance == record.instance
    return is_live and event.what is What.EXITED and not _is_of_another_pane(record, event, facts)


def _is_of_another_pane(record: WorkerRecord, event: AgentEvent, facts: Facts) -> bool:
    """Whether the exit is of another pane: sessions of an older llmc report exits without naming the pane."""
    told = _text(event.told, "pane")
    if told and record.pane_id:
        return told != record.pane_id
    return facts.agent_lives


def _exited(record: WorkerRecord, event: AgentEvent, facts: Facts) -> Verdict:
    if _is_of_another_pane(record, event, facts):
        return Verdict(action=IGNORED, details={"hook": event.name, "why": "from another pane"})
    code = facts.exit_code
    details = {"exit_code": code}
    if record.status is Status.OFFLINE:
        return Verdict(action="agent_exited", details=details)
    if code in NORMAL_EXITS:
        gone = step(Status.OFFLINE, "exited") if record.status is not Status.ERROR else None
        return Verdict(gone, action="agent_exited", details=details)
    text = f"the agent exited with code {code}" if code is not None else "the agent's process disappeared"
    earlier = record.crash_count if event.at_unix - record.last_crash_unix < CRASH_MEMORY_S else 0
    fields = {"crash_count": earlier + 1, "last_crash_unix": event.at_unix}
    if record.status is Status.ERROR:
        return Verdict(None, fields, "agent_exited", details)
    crashed = step(Status.OFFLINE, "crashed", error_reason=text, cause=Cause.CRASH)
    return Verdict(crashed, fields, "agent_exited", details)
