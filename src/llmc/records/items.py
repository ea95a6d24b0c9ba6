"""What the attention list is made of: items, and the facts that they are derived from. Pure, and light enough for the hot commands.

The list itself is `attention()` in attention/rules.py. Some items are raised in state.json by the process that saw
them (a task file that cannot be read, an accept that failed) and cleared by the one that sees that they are over. All
others follow from the facts at each look: nothing has to clear them.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from llmc.base.given import number, text

#: JSON as plain data: the hot path has no models
Raw = dict[str, Any]

#: how urgent an item is: `blocked` needs a person now, `waiting` can wait, `notice` is worth knowing
SEVERITIES = ("blocked", "waiting", "notice")


def counts(severity: str) -> bool:
    """Whether an item is one of those that "need you", wherever they are counted: in `status`, `digest` and notifications."""
    return severity != "notice"


#: what starts the daemon, wherever a person is told to: it gives the terminal back
UP = "llmc up --detach"
UP_AUTO = "llmc up --auto --detach"

#: every kind of item, with what it means; docs/protocol.md is generated from this table
KINDS: dict[str, str] = {
    # of a worker
    "review": "a worker's commits wait for review",
    "input": "a worker stopped without a commit, and waits for a message",
    "question": "a worker asks something: a question of its client, a permission, or `llmc report blocked`",
    "dialog": "a dialog of the client is open, and what is sent now would answer it",
    "held": "a person holds the worker; `notice` in the first hour, `waiting` after it",
    "offline": "the agent of a worker does not run, and the worker has a task",
    "crash": "the agent of a worker crashed",
    "start_failed": "the agent of a worker does not start: it exited immediately, or was not ready in time",
    "error": "a worker stopped with an error",
    "conflict": "a worker gave up on the conflicts of a rebase, or aborted it",
    "accept_failed": "the last accept of a worker failed; its commits are as before",
    "late_work": "a worker committed more while its work landed; that did not land, and is kept in the trash",
    "unconfirmed": "llmc typed a prompt and got no proof that it arrived",
    "login": "the client is logged out, or the API refuses its account",
    "trust": "the client does not trust the root, and would stop in a dialog",
    "person": "a person is in the way of a worker: a draft, an open dialog, an attached terminal or a hold",
    "bug": "llmc met an error that nobody thought of while it looked after a worker; the others go on",
    "trouble": "llmc cannot look after a worker: every round ends with the same error",
    "worktree": "a worktree that llmc could not reset; its worker takes no work before that",
    # of a task or a goal
    "quarantined": "a task failed three times, or cannot be done as it is; it waits for `llmc tasks requeue`",
    "parked_task": "a task used up its budget; it waits for `llmc tasks requeue`",
    "proposed": "a worker proposed a task; it waits for `llmc tasks approve`",
    "task_question": "a task that llmc will not take before a person has decided about it",
    "stuck": "tasks that wait for each other, or for one that does not exist; the others go on",
    "bad_input": "a file or a row that llmc cannot use; everything else goes on without it",
    "goal_question": "a goal, or a part of one, asks something",
    "goal_stalled": "nothing moves in a part of a goal",
    # of the fleet
    "source": "uncommitted changes or an unfinished operation in the source keep work from landing",
    "daemon": "no daemon looks after the workers",
    "auto": "auto mode is not running although its last run did not end in order, or it failed",
    "other_daemon": "another process than the one in daemon.json holds this root",
    "supervisor": "the supervisor ended by itself, or was killed",
    "parked": "the fleet waits: for a usage limit, or an API that is away",
    "budget": "a budget is nearly used up, or is",
    "canary": "the client was not tried in this version, or it failed the try",
    "disk": "the disk of the root is nearly full",
    "git_config": "settings in the root's clone that run or redirect a program; they were undone",
    "base_fails": "the default branch itself fails `repo.validate`: nothing can land, and auto mode starts no tasks",
    "validation": "no slot can be used, so work is validated in the worktrees",
}

#: what was raised about a worker, and goes with it
OF_WORKERS = ("accept_failed", "trust", "person", "bug", "trouble", "worktree")


class Item(NamedTuple):
    """One thing that needs a person."""

    #: stable as long as it is the same thing
    key: str
    kind: str
    severity: str
    #: the worker, task or file it is about
    who: str
    since_unix: float
    #: one sentence
    text: str
    #: the command to run next; empty where there is none
    next: str = ""


class Seen(NamedTuple):
    """What was seen of one worker at this moment, beside its record."""

    #: a person is attached to its pane; None when tmux gave no answer
    attached: bool | None = None
    #: the client waits for an answer: `input needed`, `permission prompt` or `dialog open`, as it says; "" when it does not
    dialog: str = ""
    #: the client says that it rests, or is gone: whatever it asked, it asks no more
    rests: bool = False
    #: a command, or the daemon, is busy with it
    acting: bool = False


class Registration(NamedTuple):
    """What daemon.json says of the daemon that wrote it; None where it does not."""

    pid: int | None = None
    #: when that process began, in the kernel's ticks
    start_ticks: str | None = None
    start_time_unix: float | None = None
    instance_id: str | None = None
    auto: bool | None = None
    #: every session is ready, or has a reason why not
    ready: bool = False
    #: the agent it drives, and the version of that client
    agent: str = ""
    version: str = ""
    #: how many auto workers it drives: auto-1 up to that number
    concurrency: int | None = None

    @classmethod
    def read(cls, row: object) -> "Registration | None":
        """Whoever wrote it: what has not its type is not there; None for what is no registration at all."""
        if not isinstance(row, dict) or not row:
            return None
        pid, auto = row.get("pid"), row.get("auto")
        ticks, instance = row.get("start_ticks"), row.get("instance_id")
        concurrency = row.get("concurrency")
        return cls(
            pid if type(pid) is int else None,
            ticks if isinstance(ticks, str) else None,
            number(row.get("start_time_unix")),
            instance if isinstance(instance, str) else None,
            auto if isinstance(auto, bool) else None,
            row.get("ready") is True,
            text(row.get("agent")),
            text(row.get("version")),
            concurrency if type(concurrency) is int else None,
        )

    def drives(self, worker: str) -> bool:
        """Whether an auto worker is one of its own; where it does not say how many those are, each is."""
        _, _, name = worker.rpartition("-")
        return self.concurrency is None or not name.isdecimal() or int(name) <= self.concurrency


class Facts(NamedTuple):
    """How things are, beside the state."""

    now: float
    #: somebody holds the daemon's lock, and who signed it
    running: bool = False
    holder: int | None = None
    #: daemon.json; a daemon that was killed leaves it
    daemon: Registration | None = None
    #: somebody holds the supervisor's lock; overseer.json
    supervised: bool = False
    overseer: Mapping[str, Any] | None = None
    workers: Mapping[str, Seen] = {}
    #: None: not known
    disk_free_bytes: int | None = None
    #: canary.json
    canary: Mapping[str, Any] | None = None
    #: the source is free again, whatever was found at the last accept
    source_is_free: bool = False
    #: when the daemon in auto mode last showed that it lives; 0: not known
    beat_unix: float = 0.0
    #: a time as people in this place say it
    clock: Any = str

    @property
    def auto_runs(self) -> bool:
        return self.running and self.daemon is not None and self.daemon.auto is True

    def drives(self, worker: str) -> bool:
        """Whether auto mode runs and has this auto worker."""
        return self.auto_runs and self.daemon is not None and self.daemon.drives(worker)

    def seen(self, worker: str) -> Seen:
        return self.workers.get(worker, Seen())
