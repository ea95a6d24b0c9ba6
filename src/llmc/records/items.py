"""The items of the attention list, and the facts they are derived from. Pure, and light enough for the hot commands.

The list itself is `attention()` in attention/rules.py. Some items are raised in state.json by the process that saw
them (an unreadable task file, a failed accept) and cleared when they are resolved. All others are derived from the facts
each time, so nothing has to clear them.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from llmc.base.given import number, text

#: JSON as plain data: the hot path has no models
Raw = dict[str, Any]

#: how urgent an item is: `blocked` needs the user now, `waiting` can wait, `notice` is information
SEVERITIES = ("blocked", "waiting", "notice")


def counts(severity: str) -> bool:
    """Whether an item counts as "needs you" in `status`, `digest` and notifications."""
    return severity != "notice"


#: the commands that hints name to start the daemon; they return to the prompt
UP = "llmc up --detach"
UP_AUTO = "llmc up --auto --detach"
#: logs the agents in, with their own client and variables
LOG_IN = "llmc claude auth login"


#: an end sooner than this makes no sense for a new run
LEAST_UNTIL_S = 60.0


def up_auto(auto: Mapping[str, Any], now: float) -> str:
    """The command that starts auto mode with the options of its last run, except an `--until` that has passed.

    `auto` is the field of state.json. While auto mode runs, `up` refuses options.
    """
    options = auto.get("run_options")
    given = options.items() if isinstance(options, Mapping) else ()
    is_over = (number(auto.get("run_until_unix")) or 0.0) - now < LEAST_UNTIL_S
    kept = [f"{name} {value}" for name, value in given if isinstance(value, str)]
    return " ".join([UP_AUTO, *(text for text in kept if not (is_over and text.startswith("--until ")))])


#: every kind of item with its meaning; docs/protocol.md is generated from this table
KINDS: dict[str, str] = {
    # of a worker
    "review": "a worker's commits are waiting for review",
    "input": "a worker stopped without a commit and needs a message",
    "question": "a worker asked a question, needs permission, or ran `llmc report blocked`",
    "dialog": "the agent has an open dialog that the next message would answer",
    "held": "a worker is on hold; severity `notice` for the first hour, then `waiting`",
    "offline": "a worker has a task, but its agent is not running",
    "crash": "a worker's agent crashed",
    "start_failed": "a worker's agent did not start: it exited immediately or was not ready in time",
    "error": "a worker stopped with an error",
    "conflict": "a worker gave up on rebase conflicts, or aborted the rebase",
    "accept_failed": "the last `llmc accept` for a worker failed; the worker's commits are unchanged",
    "late_work": "a worker made more commits while its work was landing; they are in the trash",
    "unconfirmed": "the agent did not confirm a prompt",
    "login": "Claude Code is logged out, or the API rejects the account",
    "trust": "Claude Code does not trust the root and would stop at its trust dialog",
    "person": "a worker cannot continue: unsent text, an open dialog, an attached terminal or a hold is in the way",
    "bug": "llmc hit an internal error while handling a worker; other workers are not affected",
    "trouble": "every attempt to check on a worker, or to continue its work, fails with the same error",
    "refused": "git refuses a contained worker's commits, so they cannot land",
    "forged": "a contained agent wrote files to its inbox that did not come from a hook; llmc ignored them",
    "uncontained": "an agent runs uncontained because this machine does not support containment",
    "refused_hosts": "contained agents tried to connect to hosts that are not in `sandbox.hosts`",
    "worktree": "llmc could not reset a worktree; the worker gets no tasks until a reset succeeds",
    # of a task or a goal
    "quarantined": "a task failed three times, or cannot be done as written; run it again with `llmc tasks requeue`",
    "parked_task": "a task used up its budget; run it again with `llmc tasks requeue`",
    "proposed": "a worker proposed a task; approve it with `llmc tasks approve`",
    "task_question": "a task is waiting for your decision",
    "stuck": "some tasks are in a dependency cycle or depend on an unknown task; other tasks are not affected",
    "bad_input": "llmc skipped a file or row that it could not read",
    "goal_question": "a goal or plan item has a question",
    "goal_stalled": "a plan item has stalled",
    # of the fleet
    "source": "nothing can land: the source repository has uncommitted changes or an unfinished git operation, or the remote rejects the push",
    "no_source": "no task can start or land: the source repository or its default branch is missing or cannot be reached",
    "unsettled": "llmc cannot tell whether a task landed, so the task's worker is waiting",
    "database": "the fleet's database does not respond, so no task can start or land",
    "post_accept": "a node died before its post-accept command finished, and this node has no post-accept command, so nothing can land",
    "daemon": "the daemon is not running",
    "auto": "auto mode failed, or ended unexpectedly and was not restarted",
    "other_daemon": "the daemon's lock is held by a process other than the one in daemon.json",
    "supervisor": "the supervisor gave up or was killed",
    "parked": "auto mode is parked because of a usage limit or an API outage",
    "budget": "a budget is used up or nearly used up",
    "canary": "this version of the client failed the canary or has not been tested",
    "disk": "the disk that holds the root is nearly full",
    "git_config": "llmc removed dangerous git settings, which run programs or redirect git, from the root's clone",
    "base_fails": "the default branch itself fails `repo.validate`, so nothing can land and auto mode does not start tasks",
    "uncontained_checks": "checks run uncontained because this machine does not support containment",
    "validation": "no validation slot is usable, so llmc validates work in the workers' worktrees",
}

#: how the key of a `no_source` item begins; the default branch follows
NO_SOURCE = "no_source:"

#: items about tasks and goals, which all nodes of a fleet share
OF_FLEET = (
    *("quarantined", "parked_task", "proposed", "task_question", "stuck", "goal_question", "goal_stalled"),
)
#: items about a worker, removed with it
OF_WORKERS = (
    "accept_failed",
    "trust",
    "person",
    "bug",
    "refused",
    "trouble",
    "forged",
    "uncontained",
    "worktree",
)


class Item(NamedTuple):
    """An item that needs the user."""

    #: stable as long as it is the same problem
    key: str
    kind: str
    severity: str
    #: the worker, task or file it is about
    who: str
    since_unix: float
    #: one sentence
    text: str
    #: the command to run next; empty if there is none
    next: str = ""


class Glance(NamedTuple):
    """The status that a running client reports."""

    #: as in `Seen`
    dialog: str = ""
    rests: bool = False


class Seen(NamedTuple):
    """Current facts about a worker, beside its record."""

    #: a terminal is attached to its pane; None if tmux did not answer
    attached: bool | None = None
    #: what the client waits for: `input needed`, `permission prompt` or `dialog open`; "" if nothing
    dialog: str = ""
    #: the client is idle or gone: an earlier question is over
    rests: bool = False
    #: a command, or the daemon, is busy with it
    acting: bool = False


class Registration(NamedTuple):
    """The contents of daemon.json; None for missing fields."""

    pid: int | None = None
    #: when that process started, in the kernel's ticks
    start_ticks: str | None = None
    start_time_unix: float | None = None
    instance_id: str | None = None
    auto: bool | None = None
    #: every session is ready, or has failed with a reason
    ready: bool = False
    #: the agent it runs, and its client version
    agent: str = ""
    version: str = ""
    #: how many auto workers it drives: auto-1 up to that number
    concurrency: int | None = None

    @classmethod
    def read(cls, row: object) -> "Registration | None":
        """Parse untrusted data: fields of the wrong type are dropped; None if it is not a registration."""
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
        """Whether the daemon drives this auto worker; without a `concurrency`, it drives all of them."""
        _, _, name = worker.rpartition("-")
        return self.concurrency is None or not name.isdecimal() or int(name) <= self.concurrency


class Facts(NamedTuple):
    """Current facts, beside the state."""

    now: float
    #: the daemon's lock is held, and the pid that signed it
    running: bool = False
    holder: int | None = None
    #: daemon.json; a killed daemon leaves it behind
    daemon: Registration | None = None
    #: the supervisor's lock is held; overseer.json
    supervised: bool = False
    overseer: Mapping[str, Any] | None = None
    workers: Mapping[str, Seen] = {}
    #: None: unknown
    disk_free_bytes: int | None = None
    #: canary.json
    canary: Mapping[str, Any] | None = None
    #: the source is clean again since the last accept
    source_is_free: bool = False
    #: the command that fixes a missing source; "" if it is there
    source_fix: str = ""
    #: the command that starts auto mode, with the options of its last run
    up_auto: str = UP_AUTO
    #: last heartbeat of auto mode; 0: unknown
    beat_unix: float = 0.0

    @property
    def auto_runs(self) -> bool:
        return self.running and self.daemon is not None and self.daemon.auto is True

    def drives(self, worker: str) -> bool:
        """Whether auto mode runs and has this auto worker."""
        return self.auto_runs and self.daemon is not None and self.daemon.drives(worker)

    def start_command(self, auto: bool) -> str:
        """The command that starts a worker's agent; agents of auto workers start only with auto mode."""
        return self.up_auto if auto else UP

    def seen(self, worker: str) -> Seen:
        return self.workers.get(worker, Seen())


def command_in(suggestion: str) -> str:
    """The part of a suggestion that a shell can run: its first choice, without remarks; "" if it is not a command."""
    steps = [step.partition(" (")[0] for step in suggestion.partition(", or ")[0].split(", then ")]
    return " && ".join(steps) if all(step.startswith("llmc ") for step in steps) else ""
