"""llmc demo --fleet: simulates three machines on this one, with their own PostgreSQL and git remote."""

import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from llmc.base import proc
from llmc.base.clock import monotonic, now_unix
from llmc.base.errors import LlmcError
from llmc.base.log_reader import LogReader
from llmc.cli.output import note, paint, say
from llmc.config.edit import set_value
from llmc.fleet.database import driver
from llmc.records.event_log import Row, rows_of, ts_of
from llmc.rehearsal import sample
from llmc.rehearsal.postgres import Postgres
from llmc.rehearsal.show import Show, Story, tell, title
from llmc.repo import git

MACHINES = ("laptop", "server-1", "server-2")
WORKERS = 2
#: short, so that `status --fleet` is current
LEASE_S = 12
LOOK_S = 0.25
LIMIT_S = 300.0
WAYS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: short: it becomes part of socket and session names
PREFIX = "llmc-demo-"


class Machine(Show):
    """A root with its own daemon, in the role of a machine."""

    def __init__(self, directory: Path, name: str) -> None:
        super().__init__(directory / "greeter", directory / name, machine=name)
        # The registry of roots is in the directory too, and is removed with it.
        self.env["XDG_STATE_HOME"] = str(directory / "state")
        self.landed: list[str] = []
        self._log = LogReader(str(self.root / "logs/events.jsonl"))
        self._story = Story()
        self._read: list[Row] = []

    def join(self, remote: Path, database: str) -> None:
        """Create the root and join the fleet; the first machine sets up the database, and shows its commands."""
        is_first = self.machine == MACHINES[0]
        run = self.llmc if is_first else self.output
        place = ["--source", str(remote), "--target", str(self.root)]
        run("init", *place, "--agent", self.agent, "--validate", sample.VALIDATE)
        settings = {
            "fleet.database": database,
            "fleet.node": self.machine,
            "fleet.lease_secs": str(LEASE_S),
            "auto.task_list_id": "greetings",
        }
        for key, value in settings.items():
            if is_first:
                self.llmc("config", "set", key, value)
            else:
                set_value(self.root / "config.toml", key, value)
        self.llmc("fleet", "init" if is_first else "join")

    def news(self, until: float) -> list[Row]:
        """This machine's new events to print, up to a time."""
        self._read += rows_of(self._log.lines())
        ready = [event for event in self._read if ts_of(event) <= until]
        self._read = [event for event in self._read if ts_of(event) > until]
        for event in ready:
            if event["action"] == "task_completed":
                self.landed.append(str(event["task_id"]))
            if event["action"] == "auto_failed":
                raise LlmcError(f"auto mode stopped on {self.machine} before all tasks were completed")
        found = [news for event in ready for news in self._story.next(event)]
        return [{**event, "worker": f"{self.machine}/{event.get('worker')}"} for event in found]


def run(count: int) -> None:
    """Land `count` tasks on three machines; nothing is left running, even after Ctrl-C."""
    driver()
    with proc.handling(_interrupt, *WAYS), _server() as server, _directory() as directory:
        machines = [Machine(directory, name) for name in MACHINES]
        with _stopped_at_the_end(machines):
            _tell(machines, server, directory, count)


def _tell(machines: Sequence[Machine], server: Postgres, directory: Path, count: int) -> None:
    first = machines[0]
    remote = directory / "greeter.git"
    sample.create(first.source)
    git.git(directory, "clone", "--quiet", "--bare", str(first.source), str(remote))
    title("Each of the three machines gets a root; all share one git remote and one PostgreSQL server")
    for machine in machines:
        machine.join(remote, server.address("postgres"))
    title(f"Each machine starts {WORKERS} auto workers")
    for machine in machines:
        machine.llmc("up", "--auto", "--detach", "--concurrency", str(WORKERS))
    title(f"{first.machine} adds {count} tasks to the queue; all machines work on them")
    sample.write_languages(directory / "plan", count)
    first.llmc("tasks", "import", "../plan")
    _watch(machines, count)
    title("Every machine sees the whole fleet")
    machines[-1].llmc("status", "--fleet")
    title("What landed, and where")
    for machine in machines:
        numbers = ", ".join(sorted(machine.landed, key=int)) or "none"
        say(f"{machine.machine:<8}  {len(machine.landed):>2} landed: {numbers}")
    _check(Show(first.source, directory), remote, count)


def _watch(machines: Sequence[Machine], count: int) -> None:
    """Print events until every task is completed."""
    deadline = monotonic() + LIMIT_S
    while (done := len({task for machine in machines for task in machine.landed})) < count:
        # Only up to now: a later event of one machine may follow from one of another that was not read yet.
        until = now_unix()
        news = [event for machine in machines for event in machine.news(until)]
        for event in sorted(news, key=ts_of):
            tell(event)
        if monotonic() > deadline:
            raise LlmcError(f"only {done} of {count} tasks were completed within {LIMIT_S:g} s")
        time.sleep(LOOK_S)


def _check(user: Show, remote: Path, count: int) -> None:
    """Check that the remote has each task once, in a linear history, and that a checkout passes the tests."""
    pull = ["git", "pull", "--quiet", "--ff-only", str(remote), "main"]
    user.run(pull, shlex.join(pull))
    user.run([sys.executable, *shlex.split(sample.VALIDATE)[1:]], sample.VALIDATE)
    subjects = git.git(user.source, "log", "-z", "--format=%s", "main").stdout.strip("\0").split("\0")[:-1]
    merges = git.git(user.source, "rev-list", "--merges", "main").stdout.split()
    if len(set(subjects)) != count or len(subjects) != count or merges:
        raise LlmcError(f"the remote has {len(subjects)} commits and {len(merges)} merges for {count} tasks")
    say(paint(f"{count} tasks, {count} commits, no merges; each task landed once.", "green", bold=True))


@contextmanager
def _directory() -> Iterator[Path]:
    """A temporary directory, removed at the end, but kept for inspection if something failed."""
    directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        yield directory
    except KeyboardInterrupt:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    except BaseException:
        note(f"the demo did not finish; its files are in {directory}")
        raise
    shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _server() -> Iterator[Postgres]:
    with _uninterrupted():  # a half-started server cannot be stopped
        server = Postgres()
    try:
        yield server
    finally:
        server.close()


@contextmanager
def _stopped_at_the_end(machines: Sequence[Machine]) -> Iterator[None]:
    try:
        yield
    finally:
        _stop_undisturbed()
        with ThreadPoolExecutor(len(machines)) as threads:
            list(threads.map(Machine.stop, machines))


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay signals until the end of the block."""
    pressed: list[object] = []
    for way in WAYS:
        signal.signal(way, lambda *_: pressed.append(True))
    yield
    for way in WAYS:
        signal.signal(way, _interrupt)
    if pressed:
        _interrupt()


def _interrupt(*_: object) -> None:
    _stop_undisturbed()
    raise KeyboardInterrupt


def _stop_undisturbed() -> None:
    """Ignore signals from now on, because everything is being stopped."""
    for way in WAYS:
        signal.signal(way, lambda *_: None)
