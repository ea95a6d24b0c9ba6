"""kill -9 of accept at random moments, while another worker lands and the user edits the source."""

import os
import random
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field

import pytest

from tests.support.fleet import Fleet
from tests.support.waiting import wait_until

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"
VALIDATION_S = 0.2
#: an accept takes about this long here; kills are spread over all of it
ACCEPT_S = 1.1
PAUSE_S = 0.05


@dataclass
class Person(threading.Thread):
    """A user at work in the source: untracked notes, half-done edits, and commits of their own."""

    fleet: Fleet
    seed: int
    notes: list[str] = field(default_factory=list)
    committed: list[str] = field(default_factory=list)
    problem: str = ""
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        dice = random.Random(self.seed)
        number = 0
        while not self.stop.wait(PAUSE_S * dice.randint(1, 6)):
            number += 1
            try:
                self._edit(number, dice)
            except Exception as error:  # reported by the test, in its own thread
                self.problem = repr(error)
                return

    def _edit(self, number: int, dice: random.Random) -> None:
        self.notes.append(f"note {number}")
        (self.fleet.source / "notes.txt").write_text("\n".join(self.notes))
        if dice.random() < 0.4:
            mine = self.fleet.source / "mine.txt"
            mine.write_text(f"half done {number}\n")
            self.stop.wait(PAUSE_S * dice.randint(1, 4))
            assert mine.read_text() == f"half done {number}\n", "the user's edit was overwritten"
            if dice.random() < 0.5:
                self._commit(f"Person {number}")
            else:
                self._until_git_lets_them("checkout", "-q", "HEAD", "--", "mine.txt")

    def _commit(self, subject: str) -> None:
        identity = ["-c", "user.name=Person", "-c", "user.email=person@example.com"]
        self._until_git_lets_them(*identity, "commit", "-q", "-m", subject, "--", "mine.txt")
        self.committed.append(subject)

    def _until_git_lets_them(self, *args: str) -> None:
        """What a user does when git says that another process holds its lock."""
        deadline = time.monotonic() + 30
        while True:
            done = subprocess.run(
                ["git", *args], cwd=self.fleet.source, env=self.fleet.env, capture_output=True, text=True
            )
            if done.returncode == 0:
                return
            locked = "index.lock" in done.stderr or "cannot lock ref" in done.stderr
            assert locked, done.stderr
            assert time.monotonic() < deadline, done.stderr


def accept_killed(fleet: Fleet, worker: str, after_s: float) -> bool:
    """Start an accept and kill it; returns whether it was still running."""
    process = fleet.spawn("accept", worker)
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
    return process.wait(30) == -signal.SIGKILL


def accept_until_done(fleet: Fleet, worker: str) -> None:
    """Repeat the command as long as the user is in the way."""

    said = []

    def done() -> bool:
        result = fleet.llmc("accept", worker, code=None)
        said.append(result)
        assert result.code in (0, 3), f"{result!r}\n{fleet.story()}"
        return result.code == 0 or fleet.status(worker)["status"] == "idle"

    try:
        wait_until(done, 60)
    except AssertionError as error:
        raise AssertionError(f"{len(said)} times: {said[-3:]!r}\n{fleet.story()}") from error


def one_round(fleet: Fleet, number: int, dice: random.Random) -> tuple[int, list[str]]:
    """Two workers land, one of them through kills; returns how many kills hit, and the reviewed commits."""
    for worker in ("adam", "baker"):
        script = f"echo {number} > {worker}-{number}.txt; git add -A; {COMMIT} '{worker} {number}'"
        fleet.llmc("start", "--worker", worker, "--prompt", f"@sh {script}")
    tips = [str(fleet.wait(worker, "needs_review")["commit_sha"]) for worker in ("adam", "baker")]
    other = threading.Thread(target=accept_until_done, args=(fleet, "baker"), daemon=True)
    other.start()
    kills = 0
    while accept_killed(fleet, "adam", dice.uniform(0.05, ACCEPT_S)):
        kills += 1
        if dice.random() < 0.25:
            break
    accept_until_done(fleet, "adam")
    other.join(90)
    assert not other.is_alive(), fleet.story()
    return kills, tips


def storm(fleet: Fleet, wanted: int, seed: int, *, daemon: bool) -> None:
    """Kill that often, then check the books: everything landed exactly once, and no work is lost."""
    fleet.commit("mine.txt", "a person's\n", "Mine")
    fleet.set_up("adam", "baker", config={"repo.validate": f"sleep {VALIDATION_S}"})
    fleet.up()
    if not daemon:
        fleet.kill_daemon()
    dice = random.Random(seed)
    person = Person(fleet, seed)
    person.start()
    kills, rounds, tips = 0, 0, list[str]()
    try:
        while kills < wanted:
            rounds += 1
            struck, made = one_round(fleet, rounds, dice)
            kills += struck
            tips += made
    finally:
        person.stop.set()
        person.join(40)
    story = f"seed {seed}, {kills} kills in {rounds} rounds\n{fleet.story()}"
    assert not person.problem, f"{person.problem}\n{story}"
    ours = [f"{worker} {number}" for worker in ("adam", "baker") for number in range(1, rounds + 1)]
    assert sorted(fleet.log()) == sorted([*ours, *person.committed, "Mine", "First commit"]), story
    assert fleet.git("rev-list", "--merges", "main") == ""
    assert fleet.git("status", "--porcelain") == "?? notes.txt", story
    assert (fleet.source / "notes.txt").read_text() == "\n".join(person.notes)
    for worker in ("adam", "baker"):
        assert fleet.status(worker)["status"] == "idle", story
        assert fleet.git("status", "--porcelain", cwd=fleet.worktree(worker)) == "", story
    assert len(fleet.events("accepted")) == 2 * rounds
    for tip in tips:
        places = ["refs/llmc/trash", "refs/remotes"]
        assert fleet.git("for-each-ref", "--count=1", "--contains", tip, *places, cwd=fleet.root), (
            f"{tip} is lost\n{story}"
        )


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "daemon", [pytest.param(False, id="alone", marks=pytest.mark.soak), pytest.param(True, id="with daemon")]
)
def test_five_random_kills(scripted: Fleet, daemon: bool) -> None:
    """Break: do not pin the commits before the rebase. (Only the long run can hit narrow moments.)"""
    storm(scripted, 5, random.SystemRandom().randrange(10**6), daemon=daemon)


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("daemon", [False, True], ids=["alone", "with daemon"])
def test_fifty_random_kills(scripted: Fleet, daemon: bool) -> None:
    """Break: as above; a hundred moments find more places than ten."""
    storm(scripted, 50, random.SystemRandom().randrange(10**6), daemon=daemon)
