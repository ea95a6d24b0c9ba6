"""kill -9 at named steps from the first key to the landed commit: resumed, landed once, nothing lost."""

import json
import signal
from collections.abc import Iterator

import pytest

from llmc.landing.accept_journal import STEPS
from tests.support.fleet import REAL_IN_SOAK, Fleet
from tests.support.waiting import wait_until

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"
KILLED = -signal.SIGKILL


def journal(fleet: Fleet, worker: str) -> object:
    return json.loads((fleet.root / "state.json").read_text())["workers"][worker]["accept"]


@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_killed_at_six_points_of_one_task(fleet: Fleet) -> None:
    """Only the commands themselves can resume: there is no daemon.

    Break: forget the delivery's `typed` mark, or land without checking whether it already landed.
    """
    fleet.set_up("adam", config={"repo.validate": f"echo v >> {fleet.dir}/validated; test -f one.txt"})
    fleet.up()
    fleet.kill_daemon()
    task = f"@sh echo x >> {fleet.dir}/runs; echo 1 > one.txt && git add one.txt && {COMMIT} 'Add one'\n@say done"
    start = ("start", "--worker", "adam", "--prompt", task)
    fleet.llmc(*start, code=KILLED, LLMC_FAULT="submit.paste:after:kill")
    fleet.llmc(*start, code=KILLED, LLMC_FAULT="submit.record:before:kill")
    wait_until(lambda: fleet.client_status("adam") == "idle")
    fleet.llmc("status", "--json", code=KILLED, LLMC_FAULT="intake.apply:after:kill")
    fleet.wait("adam", "needs_review")
    fleet.llmc(*start, code=3)
    fleet.llmc("accept", "adam", code=KILLED, LLMC_FAULT="accept.merge:after:kill")
    fleet.llmc("accept", "adam", code=KILLED, LLMC_FAULT="accept.land:after:kill")
    assert fleet.status("adam")["accept_step"] == "land"
    fleet.llmc("accept", "adam", code=KILLED, LLMC_FAULT="accept.reset:before:kill")
    fleet.llmc("accept", "adam")
    assert fleet.log() == ["Add one", "First commit"]
    assert (fleet.dir / "runs").read_text() == "x\n", "the task ran more than once"
    assert fleet.git("status", "--porcelain") == ""
    assert fleet.status("adam")["status"] == "idle"
    assert fleet.git("status", "--porcelain", cwd=fleet.worktree("adam")) == ""
    accepted = fleet.events("accepted")
    assert len(accepted) == 1


@pytest.fixture(scope="module")
def crashing() -> Iterator[Fleet]:
    fleet = Fleet("scripted")
    fleet.set_up("adam", config={"repo.validate": "test -f file.txt"})
    fleet.up()
    fleet.kill_daemon()
    yield fleet
    fleet.close()


#: except for that of a task (test_auto_kills), and of a slow landing (test_slow_landing)
KILLS = [step for step in STEPS if step not in ("complete", "wait")]


@pytest.mark.parametrize(
    ("step", "when"),
    [
        *((step, "before") for step in KILLS[::2]),
        ("land", "after"),
        (KILLS[-1], "after"),
        *(pytest.param(step, "before", marks=pytest.mark.soak) for step in KILLS[1::2]),
        # The end of a step is nearly the start of the next one.
        *(pytest.param(step, "after", marks=pytest.mark.soak) for step in KILLS[:-1] if step != "land"),
    ],
)
def test_accept_killed_at_every_step(crashing: Fleet, step: str, when: str) -> None:
    """Break: write the journal after a step instead of before it."""
    subject = f"Kill {when} {step}"
    before = crashing.log()
    crashing.llmc(
        "start", "--prompt", f"@sh echo '{subject}' > file.txt; git add file.txt; {COMMIT} '{subject}'"
    )
    tip = crashing.wait("adam", "needs_review")["commit_sha"]
    (crashing.source / "untracked.txt").write_text("a person's own")
    crashing.llmc("accept", "adam", code=KILLED, LLMC_FAULT=f"accept.{step}:{when}:kill")
    finished = (step, when) == ("finish", "after")
    crashing.llmc("accept", "adam", code=3 if finished else 0)
    assert crashing.log() == [subject, *before]
    assert crashing.events("accepted")[-1]["commit"] == crashing.git("rev-parse", "main")
    assert (crashing.source / "file.txt").read_text().strip() == subject
    assert (crashing.source / "untracked.txt").read_text() == "a person's own"
    assert crashing.git("status", "--porcelain") == "?? untracked.txt"
    assert crashing.status("adam")["status"] == "idle"
    assert journal(crashing, "adam") is None
    assert crashing.git("cat-file", "-t", tip, cwd=crashing.root) == "commit"
    refs = ["refs/llmc/trash", "refs/remotes"]  # in the same second, the landed commit can be the same
    assert crashing.git("for-each-ref", "--contains", tip, *refs, cwd=crashing.root), (
        "the worker's commit is lost"
    )


@pytest.mark.req("1-137", "1-144")
def test_a_validation_that_fails_lands_nothing(scripted: Fleet) -> None:
    """Break: validate after landing."""
    scripted.set_up("adam", config={"repo.validate": "test ! -e x.txt || { echo it is wrong; false; }"})
    scripted.up()
    scripted.llmc("start", "--prompt", f"@sh echo x > x.txt; git add x.txt; {COMMIT} 'Bad'")
    scripted.wait("adam", "needs_review")
    refused = scripted.llmc("accept", "adam", code=1)
    assert "adam: validation failed" in refused.err
    (failed,) = scripted.events("accept_failed")
    assert (failed["worker"], failed["step"]) == ("adam", "validate")
    assert "it is wrong" in refused.err
    assert scripted.log() == ["First commit"]
    assert scripted.status("adam")["status"] == "needs_review"
    assert journal(scripted, "adam") is None


@pytest.mark.req("1-111")
def test_two_accepts_race_and_both_land(scripted: Fleet) -> None:
    """The loser of the race rebases and validates again on the new base: main is linear and never skips validation.

    Break: land without comparing the base with the validated one.
    """
    scripted.set_up("adam", "baker", config={"repo.validate": f"ls >> {scripted.dir}/validated; sleep 0.3"})
    scripted.up()
    for worker in ("adam", "baker"):
        prompt = f"@sh echo x > {worker}.txt; git add {worker}.txt; {COMMIT} 'By {worker}'"
        scripted.llmc("start", "--worker", worker, "--prompt", prompt)
    for worker in ("adam", "baker"):
        scripted.wait(worker, "needs_review")
    racers = [scripted.spawn("accept", worker) for worker in ("adam", "baker")]
    assert [racer.wait(60) for racer in racers] == [0, 0], scripted.story()
    assert sorted(scripted.log()) == ["By adam", "By baker", "First commit"]
    assert scripted.git("rev-list", "--merges", "main") == ""
    together = scripted.git("ls-tree", "--name-only", "main").splitlines()
    last_validated = (scripted.dir / "validated").read_text().splitlines()[-len(together) :]
    assert last_validated == together


@pytest.mark.soak
def test_what_the_agent_left_running_holds_accept_off(scripted: Fleet) -> None:
    """Break: do not check for leftovers; the rebase would move files under a running program."""
    scripted.set_up("adam")
    scripted.up()
    stop = scripted.dir / "stop"
    loop = f"while [ ! -e {stop} ]; do sleep 0.1; done"
    prompt = f"@sh echo x > x.txt; git add x.txt; {COMMIT} 'X'; ({loop}) >/dev/null 2>&1 &"
    scripted.llmc("start", "--prompt", prompt)
    scripted.wait("adam", "needs_review")
    refused = scripted.llmc("accept", "adam", code=3)
    assert "has background processes (pid" in refused.err
    stop.touch()
    scripted.llmc("accept", "adam")
    assert scripted.log() == ["X", "First commit"]
