"""Self-review: the agent reviews its own work once before the user does."""

import json
import os
import pty
import signal
import sys
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from llmc.workers import self_review
from tests.e2e.test_delivery import in_process
from tests.support.fleet import REAL_IN_SOAK, Fleet
from tests.support.waiting import wait_until

WHO = "git -c user.name=Worker -c user.email=worker@example.com"
KILLED = -signal.SIGKILL


def task(subject: str, on_review: str = "true") -> str:
    commit = f"@sh echo '{subject}' > '{subject}.txt'; git add -A; {WHO} commit -q -m '{subject}'"
    return f"{subject}\n{commit}\n@on-review {on_review}"


def amend(subject: str) -> str:
    return f"echo better > '{subject}.txt'; {WHO} commit -q --amend -a -m '{subject}, better'"


def review_prompts(fleet: Fleet, about: str = "") -> list[str]:
    return [text for text in fleet.user_turns() if text.startswith("[llmc review-") and about in text]


def record(fleet: Fleet) -> dict[str, object]:
    return dict(json.loads((fleet.root / "state.json").read_text())["workers"]["adam"])


def steps(fleet: Fleet) -> list[str]:
    return [row["to"] for row in fleet.events("status_changed") if row["worker"] == "adam"]


def has_stopped(fleet: Fleet, subject: str) -> bool:
    """The agent's turn is over, as it reports itself; the state does not know yet."""
    committed = fleet.git("log", "--format=%s", "-1", cwd=fleet.worktree("adam")) == subject
    return committed and fleet.client_status("adam") == "idle"


@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_the_agent_reviews_its_own_work(fleet: Fleet) -> None:
    """One self-review for each task that asked for one: before the user's review, not again after a reject.

    Break: ask again in `comes_next` when it is DONE, or leave `then` out of the submit.
    """
    fleet.set_up("adam", config={"repo.validate": "true"})
    fleet.up()
    go = fleet.dir / "go"
    wait = f"while ! test -e {go}; do sleep 0.05; done"
    own_review = task("One", f"{wait}; {amend('One')}")
    fleet.llmc("start", "--worker", "adam", "--prompt", own_review, "--self-review")
    at_it = fleet.wait("adam", "reviewing")
    assert at_it["self_review"] == "done"
    assert at_it["commit_sha"] is None
    refused = [fleet.llmc(name, "adam", code=3) for name in ("accept", "rebase")]
    assert all("reviewing" in answer.err for answer in refused)
    assert fleet.llmc("message", "adam", "@say noted", "--json").json["outcome"] == "queued"
    go.touch()
    done = fleet.wait("adam", "needs_review")
    wait_until(lambda: fleet.client_status("adam") == "idle")
    assert fleet.wait("adam", "needs_review")["commit_sha"] == done["commit_sha"]
    (prompt,) = review_prompts(fleet)
    assert "review it yourself" in prompt
    assert "run this command and make it pass: true" in prompt
    assert "### Original task\n\nOne\n@sh " in prompt
    assert fleet.git("log", "--format=%s", "-1", cwd=fleet.worktree("adam")) == "One, better"
    assert "needs_review" not in steps(fleet)[: steps(fleet).index("reviewing")], "seen by the user only then"
    fleet.llmc("reject", "adam", f"@sh {amend('One')}")
    assert fleet.wait("adam", "needs_review")["reason"] == "stopped with commits"
    fleet.llmc("accept", "adam")
    assert fleet.log()[0] == "One, better"
    assert record(fleet)["self_review"] == "no"
    assert len(review_prompts(fleet)) == 1


@pytest.mark.soak
def test_the_configuration_asks_for_it(scripted: Fleet) -> None:
    """The default, its text, how to opt out; an agent that drops its commit; a reset in the middle.

    Break: read the configuration when the agent stops instead of when the task starts, or ignore the option.
    """
    words = "Look for names that mislead."
    scripted.set_up(
        "adam", config={"defaults.self_review.enabled": "true", "defaults.self_review.prompt": words}
    )
    scripted.up()
    scripted.llmc("start", "--worker", "adam", "--prompt", task("Plain"), "--no-self-review")
    scripted.llmc("config", "set", "defaults.self_review.enabled", "true")
    assert scripted.wait("adam", "needs_review")["reason"] == "stopped with commits"
    scripted.llmc("accept", "adam")
    assert review_prompts(scripted) == []
    dropped = "git reset -q --hard HEAD~1"
    scripted.llmc("start", "--worker", "adam", "--prompt", task("Two", dropped))
    scripted.llmc("config", "unset", "defaults.self_review.enabled")
    assert scripted.wait("adam", "needs_input")["reason"] == "stopped_clean"
    (prompt,) = review_prompts(scripted)
    assert words in prompt
    assert "1. Read the whole change" not in prompt
    scripted.llmc("message", "adam", task("Three"))
    assert scripted.wait("adam", "needs_review")["reason"] == "stopped with commits", "one per task"
    scripted.llmc("reset", "adam", "--yes")
    assert record(scripted)["self_review"] == "no"
    scripted.llmc("start", "--worker", "adam", "--prompt", task("Four", "sleep 60"), "--self-review")
    scripted.wait("adam", "reviewing")
    scripted.llmc("reset", "adam", "--yes")
    assert scripted.wait("adam", "idle")["self_review"] == "no"
    assert len(review_prompts(scripted)) == 2


@pytest.fixture(scope="module")
def shared() -> Iterator[Fleet]:
    fleet = Fleet("scripted").set_up("adam")
    fleet.up()
    yield fleet
    fleet.close()


@pytest.fixture
def running(shared: Fleet) -> Iterator[Fleet]:
    """A shared fleet: adam is idle, and waits for a file when told to."""
    (shared.dir / "go").unlink(missing_ok=True)
    yield shared.new_case()
    shared.rest("adam")


def test_it_waits_for_a_person(running: Fleet) -> None:
    """Held: nothing is typed, for longer than it takes to notice an interrupt. The same with an open dialog.

    Break: leave is_taken out of attend and finish_interrupted (it would be refused, and the review lost), is_open out
    of client_says, or NEEDS_INPUT out of `comes_next`.
    """
    go = running.dir / "go"
    slow = task("Held").replace("@sh ", f"@sh while ! test -e {go}; do sleep 0.05; done; ", 1)
    running.llmc("start", "--worker", "adam", "--prompt", slow, "--self-review")
    running.llmc("hold", "adam")
    go.touch()
    wait_until(lambda: running.record("adam")["self_review"] == "due")
    waiting = running.status("adam")
    assert (waiting["status"], waiting["reason"]) == ("working", "self-review is due")
    wait_until(lambda: running.client_status("adam") == "idle")
    running.llmc("wait", "adam", "--status", "needs_input,needs_review", "--timeout", "6", code=1)
    assert review_prompts(running) == []
    running.tmux("send-keys", "-t", running.session("adam"), "-l", "@ask Which colour?")
    running.tmux("send-keys", "-t", running.session("adam"), "Enter")
    running.wait("adam", "needs_input")
    running.llmc("release", "adam")
    running.wake("adam")
    assert review_prompts(running) == []
    running.answer_dialog("adam", "Enter")
    assert running.wait("adam", "needs_review")["reason"] == "self-review done"
    assert len(review_prompts(running)) == 1


def test_it_waits_until_the_person_detaches(running: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """No hook reports a detach, and patrol is a minute away; the review is sent anyway.

    Break: leave the self-review out of sessions.wants_a_look; or, for a user who attaches after the check in
    `attend`, `ATTACHED` out of workers/self_review.py, or `pane_now` out of the typist.
    """
    go = running.dir / "go"
    slow = task("Attached").replace("@sh ", f"@sh while ! test -e {go}; do sleep 0.05; done; ", 1)
    running.llmc("start", "--worker", "adam", "--prompt", slow, "--self-review")
    project = in_process(running, monkeypatch)
    remembers = replace(project, tmux=replace(project.tmux, remembers_s=3600.0))
    remembers.tmux.panes()
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(
            sys.executable,
            [sys.executable, "-m", "llmc", "--root", str(running.root), "attach", "adam"],
            running.env,
        )
    try:
        wait_until(lambda: running.status("adam")["attached"])
        go.touch()
        wait_until(lambda: running.record("adam")["self_review"] == "due")
        wait_until(lambda: running.client_status("adam") == "idle")
        running.wake("adam")
        with project.worker_lock("adam"):
            self_review.attend(remembers, project.store.worker("adam"))
        assert running.llmc("message", "adam", "@say no", code=3).err.count("attached") == 1
        assert running.record("adam")["self_review"] == "due"
    finally:
        os.write(terminal, b"\x02d")
        os.waitpid(pid, 0)
        os.close(terminal)
    assert running.wait("adam", "needs_review")["reason"] == "self-review done"


def test_a_draft_is_not_typed_over(running: Fleet) -> None:
    """Refused is not stuck: the user gets the work, and sees why it was not reviewed.

    Break: leave GIVE_UP out of `todo`, and the call of `_give_up` out of attend.
    """
    go = running.dir / "go"
    slow = task("Draft").replace("@sh ", f"@sh while ! test -e {go}; do sleep 0.05; done; ", 1)
    running.llmc("start", "--worker", "adam", "--prompt", slow, "--self-review")
    running.tmux("send-keys", "-t", running.session("adam"), "-l", "my own words")
    wait_until(lambda: "my own words" in running.screen("adam"))
    go.touch()
    done = running.wait("adam", "needs_review")
    assert done["reason"].startswith("self-review refused: adam's input box contains a draft")
    assert done["self_review"] == "done"
    assert review_prompts(running) == []
    assert len(running.events("self_review_failed")) == 1
    running.tmux("send-keys", "-t", running.session("adam"), "C-u")
    wait_until(lambda: "my own words" not in running.screen("adam"))


@pytest.mark.soak
def test_a_restart_does_not_lose_it(running: Fleet) -> None:
    """Due while the user held the worker, then everything was stopped: it is sent after the next start.

    Break: take NEEDS_REVIEW out of _CAN_BE_SENT.
    """
    go = running.dir / "go"
    slow = task("Restart").replace("@sh ", f"@sh while ! test -e {go}; do sleep 0.05; done; ", 1)
    running.llmc("start", "--worker", "adam", "--prompt", slow, "--self-review")
    running.llmc("hold", "adam")
    go.touch()
    wait_until(lambda: running.record("adam")["self_review"] == "due")
    running.llmc("down")
    running.up()
    assert running.wait("adam", "needs_review")["self_review"] == "due"
    running.llmc("release", "adam")
    wait_until(
        lambda: (
            running.record("adam")["status"] == "needs_review"
            and running.status("adam")["reason"] == "self-review done"
        )
    )
    assert steps(running)[-2:] == ["reviewing", "needs_review"]
    assert len(review_prompts(running)) == 1


@pytest.fixture(scope="module")
def alone() -> Iterator[Fleet]:
    """A worker whose daemon was killed: commands do what it would have done."""
    fleet = Fleet("scripted")
    fleet.set_up("adam", config={"defaults.self_review.enabled": "true"})
    fleet.up()
    fleet.kill_daemon()
    yield fleet
    fleet.close()


POINTS = [
    "intake.apply:after",
    "self_review.prompt:before",
    "submit.persist:after",
    "submit.paste:after",
    "submit.record:before",
    "self_review.prompt:after",
]
SHORT = ("self_review.prompt:before", "submit.paste:after")


@pytest.mark.parametrize(
    "point", [p if p in SHORT else pytest.param(p, marks=pytest.mark.soak) for p in POINTS]
)
def test_killed_between_the_stop_and_the_prompt(alone: Fleet, point: str) -> None:
    """The next command or daemon sends it, and never twice.

    Break: send before SENT is in state, or leave DELIVER out of `todo`.
    """
    subject = f"Killed at {point}".replace(":", " ")
    alone.llmc("start", "--worker", "adam", "--prompt", task(subject, amend(subject)))
    wait_until(lambda: has_stopped(alone, subject))
    alone.llmc("status", code=KILLED, LLMC_FAULT=f"{point}:kill")
    done = alone.wait("adam", "needs_review")
    assert done["reason"] == "self-review done"
    assert len(review_prompts(alone, subject)) == 1
    alone.llmc("accept", "adam")
    assert alone.log()[0] == f"{subject}, better"


@pytest.mark.soak
def test_killed_before_it_gives_up(alone: Fleet) -> None:
    """Break: look only for what is due, not for what was refused."""
    alone.llmc("start", "--worker", "adam", "--prompt", task("Given up"))
    wait_until(lambda: has_stopped(alone, "Given up"))
    alone.tmux("send-keys", "-t", alone.session("adam"), "-l", "mine")
    wait_until(lambda: "mine" in alone.screen("adam"))
    alone.llmc("status", code=KILLED, LLMC_FAULT="self_review.give_up:before:kill")
    assert alone.wait("adam", "needs_review")["reason"].startswith(
        "self-review refused: adam's input box contains a draft"
    )
    alone.tmux("send-keys", "-t", alone.session("adam"), "C-u")
    assert review_prompts(alone, "Given up") == []
    alone.llmc("accept", "adam")
