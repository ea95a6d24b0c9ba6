"""Review comments and rounds of each worker, in `.llmc/reviews/`: saved as they are typed, and sent as one request.

A request is written to the file before it is sent, and marked as sent after its receipt. After a crash between the two,
the worker's record or the event log says whether it arrived.
"""

import json
import shlex
from collections.abc import Callable, Iterable
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from llmc.base.clock import now_unix
from llmc.base.errors import Refused
from llmc.base.faults import step as fault_step
from llmc.base.files import private_dir, read_given, write_atomic
from llmc.base.locks import Rank, is_locked_by_others, lock
from llmc.base.text import json_text
from llmc.config.paths import Root
from llmc.landing import review
from llmc.landing.review import Review
from llmc.records.event_log import EventLog
from llmc.records.worker import Outcome, WorkerRecord
from llmc.repo import trash
from llmc.repo.project import Project
from llmc.reviews.rules import talk as rules
from llmc.reviews.rules.talk import Comment, Round, Talk
from llmc.sessions import submit
from llmc.sessions.submit import Receipt
from llmc.workers import patrol, start

LOCK_S = 10.0
#: how many earlier talks of a worker are kept, including drafts that were never sent
EARLIER = 20


class _File(msgspec.Struct, frozen=True, kw_only=True):
    talk: Talk = Talk()
    #: of earlier tasks, latest last
    earlier: tuple[Talk, ...] = ()


def read(project: Project, record: WorkerRecord) -> Talk:
    """The comments on the current task of a worker."""
    talk = _read(project.root, record.name).talk
    if not _is_about_its_task(talk, record):
        return Talk(task=record.task_prompt)
    return _settled(project, record, talk)


def change(project: Project, record: WorkerRecord, act: Callable[[Talk], Talk]) -> Talk:
    """Change the comments on the current task; returns the new ones."""
    return _changed(project, record, lambda talk: act(_settled(project, record, talk)))


def _changed(project: Project, record: WorkerRecord, act: Callable[[Talk], Talk]) -> Talk:
    with lock(project.root.lock(f"review-{record.name}"), Rank.REVIEW, timeout_s=LOCK_S):
        file = _read(project.root, record.name)
        talk = file.talk
        if not _is_about_its_task(talk, record):
            kept = (*file.earlier, talk) if talk.comments else file.earlier
            file = _File(earlier=kept[-EARLIER:])
            talk = Talk(task=record.task_prompt)
        talk = act(talk)
        path = private_dir(project.root.reviews) / f"{record.name}.json"
        # Not msgspec: file names and diff lines may have bytes that are not UTF-8.
        write_atomic(path, json_text(msgspec.to_builtins(replace(file, talk=talk)), indent=1).encode())
        return talk


class Request(msgspec.Struct, frozen=True):
    """The prompt that sends the drafts, without its header."""

    text: str

    @property
    def key(self) -> str:
        """Distinguishes this prompt from any other."""
        return sha256(self.text.encode()).hexdigest()[:16]


def request(project: Project, shown: Review, drafts: Iterable[Comment], general: str = "") -> Request:
    """What `send` would send for this change."""
    return Request(start.reject_text(project, shown, rules.request_text(drafts, general)))


def send(project: Project, name: str, general: str = "", seen: str = "") -> Receipt:
    """Send all drafts as one request for changes; the caller holds the worker's lock.

    `seen`: the key of the prompt that the user saw; any other prompt is refused.
    """
    record = project.store.worker(name)
    talk = read(project, record)
    if not talk.drafts and not general.strip():
        raise Refused(
            f"no comments to send to {name}",
            hint="To add a comment, press c on a line of the diff in `llmc ui`.",
        )
    review.refuse_unless_waiting(project, record, "reject")
    if talk.open_round is not None:  # an earlier request was interrupted, and has perhaps arrived
        record = patrol.finish_interrupted(project, name)
        review.refuse_unless_waiting(project, record, "reject")
        talk = read(project, record)
    shown = review.look(project, record)
    if seen and seen != request(project, shown, talk.drafts, general).key:
        raise Refused(
            f"nothing was sent: the request to {name} has changed since you saw it",
            hint="Review the diff again, then send your comments.",
        )
    prompt_id = submit.new_prompt_id("reject")
    begun = Round(
        number=talk.round,
        base=shown.base,
        head=shown.head,
        ref=trash.pin_commit(project.root, name, "round", shown.head),
        at_unix=now_unix(),
        prompt_id=prompt_id,
    )
    talk = change(project, record, lambda now: rules.sending(now, begun))
    with fault_step("review.send"):
        text = rules.request_text(talk.drafts, general)
        receipt = start.reject(project, name, text, prompt_id=prompt_id)
    _changed(project, record, lambda now: _after(now, prompt_id, receipt.outcome))
    return receipt


def tree_of_round(project: Project, shown: Review, sent: Round) -> str:
    """What the user saw in a round, on the current base, so that a rebase alone shows no difference."""
    return review.tree_on(project, shown.worker, shown.base, sent.head)


def _is_about_its_task(talk: Talk, record: WorkerRecord) -> bool:
    """Unless the record names another task. A rebuilt one names none if event log and conversation are lost, too."""
    return record.task_prompt in ("", talk.task)


def _after(talk: Talk, prompt_id: str, outcome: Outcome) -> Talk:
    """Settle the pending round by the outcome of its prompt; a settled round stays."""
    if talk.open_round is None or talk.open_round.prompt_id != prompt_id:
        return talk
    return rules.arrived(talk) if outcome.arrived else rules.failed(talk)


def _settled(project: Project, record: WorkerRecord, talk: Talk) -> Talk:
    """Settle a round after a crash while sending: the worker's record, else the event log, knows whether it arrived.

    If neither knows, the sender may be about to send it: it holds the worker's lock.
    """
    pending = talk.open_round
    if pending is None:
        return talk
    is_sender_alive = is_locked_by_others(project.root.lock(f"worker-{record.name}"))
    delivery = project.store.worker(record.name).delivery  # the caller's record may be older than the lock
    if delivery is not None and delivery.prompt_id == pending.prompt_id:
        return talk if delivery.outcome.open else _after(talk, pending.prompt_id, delivery.outcome)
    told = EventLog(str(project.root.events)).newest(pending.prompt_id.encode())
    has_arrived = any(
        Outcome(row["outcome"]).arrived for row in told if row.get("action") == "prompt_delivered"
    )
    if has_arrived:
        return rules.arrived(talk)
    return talk if is_sender_alive else rules.failed(talk)


def _read(root: Root, worker: str) -> _File:
    path = root.reviews / f"{worker}.json"
    try:
        return msgspec.convert(json.loads(read_given(path)), type=_File)
    except FileNotFoundError:
        return _File()
    except (OSError, ValueError, RecursionError) as error:
        raise Refused(
            f"cannot read the comments on {worker}: {path}: {error}",
            hint=f"Fix the file, or move it aside: mv {shlex.quote(str(path))} {shlex.quote(f'{path}.bad')}",
        ) from error
