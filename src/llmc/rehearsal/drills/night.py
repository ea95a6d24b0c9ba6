"""A night in minutes: a plan, a fleet under its supervisor, and a fault every few seconds."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable

from msgspec import Struct, field

from llmc.base.clock import monotonic, now_unix
from llmc.base.errors import LlmcError
from llmc.rehearsal.drills.model import DrillFailed
from llmc.rehearsal.drills.scratch import PERSON, Scratch, overwrite
from llmc.repo import git

#: about a sixtieth of the configuration defaults, as far as a machine can keep up
SETTINGS = {
    "auto.concurrency": "3",
    "auto.dirty_backoff_secs": "0.2",
    "overseer.restart_cooldown_secs": "1",
    "overseer.stall_timeout_secs": "60",
    "overseer.max_remediations_per_day": "1000",
}
#: open tasks at any time of the night: enough for three workers, on a fast machine and on a slow one
AHEAD = 24
#: after the last fault, everything must finish without help; a task must land at least this often
MORNING_S = 180.0
#: between two faults
PAUSE_S = (0.5, 4.0)
#: the cooldown, with some margin
CALM_S = 2.0
#: a serious fault that has not stopped the daemon by then will not
OVER_S = 15.0


class Night(Struct):
    scratch: Scratch
    dice: random.Random
    lasts_s: float
    struck_unix: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    quarantined: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        self._prepare()
        self._add_tasks()
        self.scratch.supervise()
        self.scratch.breaks_now()
        over = monotonic() + self.lasts_s
        while monotonic() < over:
            self._add_tasks()
            self._break_something()
            time.sleep(self.dice.uniform(*PAUSE_S))
        self._morning()

    def _prepare(self) -> None:
        scratch = self.scratch
        scratch.create(**SETTINGS)
        fix = scratch.directory / "fix.sh"
        fix.write_text(_FIXES.format(root=scratch.root, source=scratch.source, person=PERSON))
        scratch.remedy(f"sh {fix}")

    def _add_tasks(self) -> None:
        """Keep `AHEAD` tasks open, so that there is always something to break, but the morning is short."""
        scratch, last = self.scratch, len(self.scratch.expected)
        missing = AHEAD - len(scratch.expected - set(scratch.landed()))
        for number in range(last + 1, last + 1 + missing):
            dice = random.Random(f"{scratch.terms.seed} {number}")
            earlier = range(max(1, number - AHEAD), number)
            after = tuple(sorted(dice.sample(earlier, min(len(earlier), dice.randint(0, 2)))))
            scratch.task(number, *self._lines(number, dice), after=after)

    def _lines(self, number: int, dice: random.Random) -> list[str]:
        scratch, slow = self.scratch, f"sleep {dice.uniform(0.1, 3):.1f}"
        if dice.random() < 0.1:
            return ["@limit 1", f"@on-resume {scratch.commit(number)[4:]}"]
        if dice.random() < 0.1:
            return [scratch.half(number, "kill -9 $PPID; sleep 9"), scratch.commit(number)]
        return [scratch.half(number, slow), scratch.commit(number)]

    def _is_done(self) -> bool:
        return set(self.scratch.landed()) >= self.scratch.expected

    def _break_something(self) -> None:
        harmless, serious = _harmless(self), _serious(self)
        name, strike = self.dice.choice([*harmless, *serious] if self._is_calm() else harmless)
        try:
            strike()
        except (OSError, LlmcError, DrillFailed):
            return  # nothing to break at the moment
        self.faults[name] += 1
        if name in dict(serious):
            self.struck_unix = now_unix()

    def _is_calm(self) -> bool:
        """Whether the last serious fault is over: another one within the cooldown would rightly stop the supervisor."""
        started = self.scratch.events("overseer_daemon_started")[-1]["ts"]
        is_over = started > self.struck_unix or now_unix() - self.struck_unix > OVER_S
        return is_over and now_unix() - started > CALM_S and bool(self.scratch.ready_daemon())

    def _morning(self) -> None:
        """After the faults: requeue quarantined tasks until all are done; each must have a cause."""
        scratch, landed, since = self.scratch, 0, monotonic()
        while not self._is_done() and monotonic() - since < MORNING_S:
            if len(scratch.landed()) > landed:
                landed, since = len(scratch.landed()), monotonic()
            for row in scratch.events("task_quarantined"):
                key = f"{row['task_id']} {row['ts']}"
                if key not in self.quarantined:
                    self.quarantined[key] = str(row["cause"])
                    scratch.llmc("tasks", "requeue", str(row["task_id"]), check=False)
            time.sleep(0.5)
        scratch.require(all(self.quarantined.values()), "every quarantined task has a cause")
        scratch.all_landed(10)
        scratch.notes.append(
            f"faults: {sum(self.faults.values())} ("
            + ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
            + f"); remediations: {len(scratch.events('overseer_remediation')) // 2}, "
            f"tasks quarantined: {len(self.quarantined)}, tasks landed: {len(scratch.landed())}"
        )


def night(scratch: Scratch) -> None:
    Night(scratch, random.Random(scratch.terms.seed), scratch.terms.lasts_s).run()


Strike = tuple[str, Callable[[], None]]


def _harmless(night: Night) -> list[Strike]:
    """Faults that the daemon recovers from."""
    scratch, dice = night.scratch, night.dice
    worker = f"auto-{dice.randint(1, 3)}"

    def kill_session() -> None:
        project = scratch.project()
        project.tmux.kill_session(project.session(worker))

    def person_edits() -> None:
        readme = scratch.source / "README.md"
        readme.write_text(f"{readme.read_text()}edited by user\n")
        time.sleep(dice.uniform(0.1, 1.0))
        commit = [*PERSON.split(), "commit", "--quiet", "-m", "By a person", "--", "README.md"]
        git.git(scratch.source, *commit, check=False)

    return [
        ("agent killed", lambda: os.kill(scratch.agent_pid(worker), signal.SIGKILL)),
        ("session killed", kill_session),
        ("user edit", person_edits),
    ]


def _serious(night: Night) -> list[Strike]:
    """Faults that need the supervisor."""
    scratch = night.scratch
    state, config = scratch.root / "state.json", scratch.root / "config.toml"
    lock = scratch.source / ".git/refs/heads/main.lock"

    def leave_lock() -> None:
        lock.touch()
        os.utime(lock, (now_unix() - 3600, now_unix() - 3600))

    def corrupt() -> None:
        with scratch.state_is_mine():
            for path in (state, state.with_suffix(".json.bak")):
                path.write_text("{ no state")

    def forget() -> None:
        with scratch.state_is_mine():
            overwrite(state, '{"workers": {}}')

    return [
        ("daemon killed", lambda: os.kill(scratch.daemon(), signal.SIGKILL)),
        ("tmux killed", lambda: scratch.project().tmux.kill_server()),
        ("socket removed", lambda: scratch.project().root.wake_socket().unlink()),
        ("state corrupt", corrupt),
        ("state overwritten", forget),
        ("config broken", lambda: overwrite(config, config.read_text() + "no toml [\n")),
        ("git lock", leave_lock),
    ]


#: what an agent would do, in order; each step does nothing if nothing is wrong
_FIXES = """\
sed -i '/^no toml/d' {root}/config.toml
rm -f {source}/.git/refs/heads/main.lock
git -C {source} {person} commit -q -a -m 'By a person' || true
llmc status --json | grep -q '"name": "auto-1"' || llmc doctor --rebuild --yes
llmc doctor --repair --yes || true
"""
