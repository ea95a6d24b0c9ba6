"""Commands on a worker: add, start, message, answer, hold, attach."""

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from llmc.agents.kinds import reader_of
from llmc.attention.rules import WORDS
from llmc.base import proc
from llmc.base.errors import LlmcError, NotFound, Refused, StateError, UsageError
from llmc.base.names import OVERSEER
from llmc.base.panes import Pane
from llmc.base.tmux import answered, exact, outer, prefix_of
from llmc.config.model import Worker as Worker
from llmc.records.worker import WorkerRecord
from llmc.repo import git, setup
from llmc.repo.project import Project, for_overseer
from llmc.sessions import status_line
from llmc.sessions.rules.prompt_text import normalise
from llmc.sessions.sessions import agent_gone
from llmc.sessions.submit import Receipt as Receipt
from llmc.workers import answering
from llmc.workers import start as starting
from llmc.workers.answering import answer as answer
from llmc.workers.patrol import catch_up
from llmc.workers.up_and_down import bring_up

#: names for workers that `start --new` adds
NAMES = (
    *("adam", "baker", "charlie", "david", "edward", "frank", "george", "henry"),
    *("ida", "john", "king", "lincoln", "mary", "nora", "ocean", "peter"),
)

#: prints progress for the user
Tell = Callable[[str], None]


class Question(Struct, frozen=True):
    """A worker's question and its options."""

    text: str
    options: tuple[str, ...]

    @property
    def key(self) -> str:
        """Distinguishes this question from the next one of the same worker."""
        return sha256("\0".join((self.text, *self.options)).encode("utf-8", "replace")).hexdigest()[:16]


class Screen(Struct, frozen=True):
    """The last lines of an agent's terminal."""

    lines: list[str]
    dead: bool
    exit_code: int | None


class Terminal(Struct, frozen=True):
    """How to open an agent's terminal: the command to run, and the keys to detach."""

    argv: list[str]
    env: dict[str, str]
    #: the prefix key of the root's tmux server
    prefix: str
    #: inside the user's own tmux: its prefix key
    outer_prefix: str | None
    #: the user is already on the root's server, so the client only switches
    switches: bool

    @property
    def leave(self) -> str:
        """The keys that leave the terminal."""
        return f"{self.prefix} L" if self.switches else detach_keys(self.prefix, self.outer_prefix)


def detach_keys(inner: str, around: str | None) -> str:
    """The keys that detach from a worker; `around` is the prefix of the tmux around it."""
    return f"{inner} {inner} d" if around == inner else f"{inner} d"


def add(project: Project, name: str, settings: Worker, warn: Tell) -> WorkerRecord:
    """Add a worker with its worktree; a running daemon starts its agent."""
    record = setup.add_worker(project, name, settings, warn=warn)
    project.wake()
    return record


def start(
    project: Project,
    text: str,
    worker: str | None,
    self_review: bool | None,
    tell: Tell,
    *,
    new: bool = False,
) -> Receipt:
    """Start a task on the given worker, else on an idle one; with `new`, add one if none is idle."""
    normalise(text)  # refuse text that cannot be sent, whatever the status of the worker
    catch_up(project)
    if worker is not None:
        starting.refuse_auto(project.store.worker(worker))
    with ExitStack() as held:
        name = _pick(project, held, new, tell) if worker is None else project.store.worker(worker).name
        if worker is not None:
            held.enter_context(project.worker_lock(name))
        return starting.start_task(project, name, text, self_review)


def _pick(project: Project, held: ExitStack, new: bool, tell: Tell) -> str:
    """An idle worker, with its lock in `held`."""
    try:
        return held.enter_context(starting.idle_worker(project))
    except NotFound as error:
        if not new:
            raise NotFound(
                error.message, hint=f"{error.hint} To add one and start the task on it: llmc start --new ..."
            ) from error
    name = _add_one(project, tell)
    held.enter_context(project.worker_lock(name))
    return name


def _add_one(project: Project, tell: Tell) -> str:
    names = set(project.store.read().workers)
    name = next((n for n in NAMES if n not in names), None)
    if name is None:
        raise UsageError(
            "cannot add a worker: all default names are in use",
            hint="Choose a name with `llmc add NAME`, then run `llmc start` again.",
        )
    tell(f"no worker is idle; adding {name}")
    setup.add_worker(project, name, Worker())
    problem = bring_up(setup.new_project(project.root), name)
    if problem:
        raise NotFound(f"{name} was added, but its agent did not start: {problem}")
    return name


def message(project: Project, name: str, text: str) -> tuple[Receipt, bool]:
    """Send a message into the running conversation; also returns whether that cancelled an accept."""
    normalise(text)  # refuse text that cannot be sent, whatever the status of the worker
    return starting.message(project, name, text)


def question(project: Project, name: str) -> Question:
    """The question of a worker; refuses one that `answer` cannot answer."""
    return Question(*answering.question_of(project, name))


def hold(project: Project, name: str, held: bool) -> bool:
    """Put a worker on hold or release it; returns whether that changed anything."""
    return switch_hold(project, name, held) is not None


def switch_hold(project: Project, name: str, held: bool | None = None) -> bool | None:
    """Put a worker on hold or release it, by default toggle; returns the new state, or None if nothing changed."""
    with project.store.transaction() as tx:
        was = tx.worker(name).held
        now = not was if held is None else held
        if now == was:
            return None
        tx.update(name, held=now, held_since_unix=tx.now if now else 0.0)
        tx.emit("held" if now else "released", worker=name)
    project.wake(name)
    return now


class Details(Struct, frozen=True):
    """A worker's task and state, for a page about it."""

    prompt: str
    #: names and values, for people
    facts: tuple[tuple[str, str], ...]


def details(project: Project, name: str) -> Details:
    record = project.store.worker(name)
    reason = WORDS.get(record.reason, record.reason)
    held = " (held)" if record.held else ""
    facts = (
        ("status", f"{record.status} ({reason}){held}" if reason else f"{record.status}{held}"),
        ("task", record.assignment.task_id if record.assignment else ""),
        ("branch", record.branch),
        ("commit", record.commit_sha or ""),
        ("worktree", record.worktree_path),
        ("model", record.model),
        ("error", record.error_reason),
    )
    return Details(record.current_prompt, facts)


class Turn(Struct, frozen=True):
    """A message in a conversation."""

    #: `user`, `assistant` or `error`
    role: str
    at_unix: float
    text: str


def talk(project: Project, name: str, most: int = 30) -> list[Turn]:
    """The last messages of a worker's conversation, oldest first; empty if there is none."""
    record = project.store.worker(name)
    if not record.transcript_path:
        return []
    try:
        rows = reader_of(record.agent).transcript(record.transcript_path).last_messages(most)
    except (LlmcError, OSError):
        return []
    return [Turn(role, at, text) for _, role, at, text in rows]


def commit_of(project: Project, name: str) -> str:
    """The commit that a worker wants to land; "" if there is none."""
    return project.store.worker(name).commit_sha or ""


def worktree(project: Project, name: str) -> Path:
    found = Path(project.store.worker(name).worktree_path)
    if not found.is_dir():
        raise git.NoWorktree(found)
    return found


def screen(project: Project, name: str, lines: int) -> Screen:
    """The last lines of an agent's screen; `overseer` is the remediation agent."""
    pane = _pane(project, name)
    captured = project.tmux.capture(pane, history=lines).rstrip().split("\n")
    return Screen([line.rstrip() for line in captured][-lines:], pane.dead, pane.exit_code)


def terminal(
    project: Project,
    name: str,
    environ: Mapping[str, str],
    *,
    read_only: bool,
    keeps_size: bool = False,
) -> Terminal:
    """How to open an agent's terminal from a shell with this environment; `overseer` is the remediation agent.

    `keeps_size`: the new terminal does not change the size of the agent's window.
    """
    pane = _pane(project, name)
    around = outer(environ)
    is_ours = around is not None and Path(around).name == project.tmux.server
    # Select the agent's pane, unless another terminal is attached.
    front = ["select-window", "-t", pane.id, ";", "select-pane", "-Z", "-t", pane.id, ";"]
    verb = "switch-client" if is_ours else "attach-session"
    flags = [*(["-r"] if read_only else []), *(["-f", "ignore-size"] if keeps_size else [])]
    # To switch, keep TMUX: it names the client.
    drop = ("TMUX_TMPDIR",) if is_ours else tuple(key for key in environ if key.startswith("TMUX"))
    prefix = prefix_of(project.tmux.argv())
    outer_prefix = None if around is None or is_ours else prefix_of(["tmux", "-S", around])
    status_line.prepare(project, pane.session, prefix, nested=outer_prefix == prefix)
    return Terminal(
        argv=project.tmux.argv(*([] if pane.attached else front), verb, *flags, "-t", exact(pane.session)),
        env={key: value for key, value in environ.items() if key not in drop},
        prefix=prefix,
        outer_prefix=outer_prefix,
        switches=is_ours,
    )


class TakenOver(Struct, frozen=True):
    """A terminal on an agent's pane, for a browser."""

    child: proc.Child
    #: our end: write what is typed, read what is shown
    fd: int
    columns: int
    lines: int


def take_over(project: Project, name: str) -> TakenOver:
    """Attach to an agent's pane; the worker counts as attached until `hand_back`. Its window keeps its size."""
    # tmux draws `_` for what a terminal without UTF-8 cannot show.
    environ = {**proc.clean_env(), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    columns, lines = project.tmux.size(_pane(project, name))
    opened = terminal(project, name, environ, read_only=False, keeps_size=True)
    child, fd = proc.run_on_terminal(opened.argv, opened.env, columns, lines)
    return TakenOver(child, fd, columns, lines)


def hand_back(taken: TakenOver) -> None:
    """Detach. Ends only the terminal; the agent keeps running."""
    proc.kill_group(taken.child)
    os.close(taken.fd)


def _pane(project: Project, name: str) -> Pane:
    """The pane of a worker's agent or the remediation agent, or an error with the fix."""
    is_overseer = name == OVERSEER
    of = for_overseer(project) if is_overseer else project
    try:
        pane = answered(of.pane(of.store.worker(name)))
    except (NotFound, StateError):
        if not is_overseer:
            raise
        pane = None  # never started
    if pane is None:
        if is_overseer:
            raise Refused(
                "the remediation agent is not running",
                hint="The supervisor starts it after a failure. To run the supervisor: llmc overseer",
            )
        raise agent_gone(project, project.store.worker(name))
    return pane
