"""Delivery under faults, on both agents: never falsely acknowledged, never executed twice."""

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from llmc.agents.protocol import ClientStatus
from llmc.base.names import header_id
from llmc.base.processes import is_alive
from llmc.repo.project import open_project
from llmc.sessions import submit
from llmc.sessions.typist import ENTERS, PROOF_WAIT_S, REST_S, SETTLE_S, Typist, _Trace
from llmc.workers.start import start_task
from tests.support import late_screen, starved_agent
from tests.support.fleet import REAL_IN_SOAK, Fleet
from tests.support.loopback_api import LoopbackApi
from tests.support.real_client import seed_config
from tests.support.waiting import wait_until


@pytest.fixture(scope="module", params=REAL_IN_SOAK)
def shared(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """One fleet for the faults that leave the agent alive."""
    server: LoopbackApi | None = request.getfixturevalue("api") if request.param == "claude" else None
    fleet = Fleet(request.param, server)
    fleet.set_up("adam")
    fleet.up()
    yield fleet
    fleet.close()


def turns_with(fleet: Fleet, prompt_id: str) -> int:
    """How often a prompt was received: as its own turn, or folded into a running one."""
    taken = Counter(header_id(text) for text in fleet.user_turns())
    queued = Counter(
        header_id(row["content"])
        for row in fleet.transcript_rows()
        if row.get("type") == "queue-operation" and row.get("operation") == "enqueue"
    )
    return max(taken[prompt_id], queued[prompt_id])


def marks(fleet: Fleet, name: str) -> int:
    """How often the agent executed a prompt that appends to this file."""
    path = fleet.dir / name
    return len(path.read_text().splitlines()) if path.exists() else 0


def mark_prompt(fleet: Fleet, name: str) -> str:
    return f"@sh echo x >> {fleet.dir / name}\n@say marked"


def at_rest(fleet: Fleet) -> None:
    """The agent is done with everything it was sent."""
    wait_until(lambda: fleet.client_status("adam") == "idle", 30)


def a_swallowed_enter_is_pressed_again(shared: Fleet) -> None:
    """Break: return after the first Enter without checking for proof."""
    at_rest(shared)
    sent = shared.llmc(
        "message", "adam", mark_prompt(shared, "swallowed"), "--json", LLMC_FAULT="submit.enter:before:fail:1"
    ).json
    assert sent["outcome"] == "acknowledged"
    assert sent["elapsed_ms"] > 1500
    at_rest(shared)
    assert marks(shared, "swallowed") == 1
    assert turns_with(shared, sent["prompt_id"]) == 1


def an_enter_that_never_works_is_unconfirmed_and_taken_back(shared: Fleet, lines: int = 40) -> None:
    """Break: skip _take_back; the text stays in the box and the next prompt is refused."""
    at_rest(shared)
    name = f"never{lines}"
    faults = ",".join(f"submit.enter:before:fail:{n}" for n in (1, 2, 3))
    text = mark_prompt(shared, name) + "\nmore words" * lines
    sent = shared.llmc("message", "adam", text, "--json", code=1, LLMC_FAULT=faults).json
    assert sent["outcome"] == "unconfirmed"
    after = shared.llmc("message", "adam", mark_prompt(shared, name + "-next"), "--json").json
    assert after["outcome"] == "acknowledged", shared.story()
    at_rest(shared)
    assert marks(shared, name) == 0
    assert marks(shared, name + "-next") == 1


def an_open_dialog_is_never_answered(shared: Fleet) -> None:
    """Break: do not check `waiting` before pasting."""
    at_rest(shared)
    shared.llmc("message", "adam", "@ask Which colour?\n@say asked")
    wait_until(lambda: shared.client_status("adam") == "waiting")
    sent = shared.llmc("message", "adam", mark_prompt(shared, "dialog"), "--json", code=3).json
    assert sent["outcome"] == "refused"
    assert "dialog" in sent["reason"]
    assert shared.client_status("adam") == "waiting", "the dialog was answered"
    assert shared.status("adam")["status"] == "needs_input"
    shared.answer_dialog("adam", "Escape")
    at_rest(shared)
    assert marks(shared, "dialog") == 0


def a_persons_draft_is_left_alone(shared: Fleet) -> None:
    """Break: skip the check of the composer."""
    at_rest(shared)
    shared.tmux("send-keys", "-t", shared.session("adam"), "-l", "half a thought")
    wait_until(lambda: "half a thought" in shared.screen("adam"))
    sent = shared.llmc("message", "adam", mark_prompt(shared, "draft"), "--json", code=3).json
    assert sent["outcome"] == "refused"
    assert "draft" in sent["reason"]
    assert "half a thought" in shared.screen("adam")
    if shared.status("adam")["status"] == "idle":
        task = shared.llmc(
            "start", "--worker", "adam", "--prompt", mark_prompt(shared, "draft"), "--json", code=3
        ).json
        assert task["outcome"] == "refused"
        assert shared.status("adam")["prompt"] == "", "a task that was not typed is not assigned"
    shared.tmux("send-keys", "-t", shared.session("adam"), "C-u")
    wait_until(lambda: "half a thought" not in shared.screen("adam").rstrip().splitlines()[-3])
    assert (
        shared.llmc("message", "adam", mark_prompt(shared, "draft"), "--json").json["outcome"]
        == "acknowledged"
    )
    at_rest(shared)
    assert marks(shared, "draft") == 1


def a_running_turn_queues_it(shared: Fleet) -> None:
    at_rest(shared)
    shared.llmc("message", "adam", "@sleep 3\n@say slept")
    wait_until(lambda: shared.client_status("adam") == "busy")
    sent = shared.llmc("message", "adam", mark_prompt(shared, "queued"), "--json").json
    assert sent["outcome"] == "queued"
    wait_until(lambda: marks(shared, "queued") == 1)
    at_rest(shared)
    assert marks(shared, "queued") == 1
    assert turns_with(shared, sent["prompt_id"]) == 1


POINTS = ("submit.paste:after", "submit.enter:before", "submit.enter:after", "submit.receipt:after")


def killed_while_typing_then_finished_by_the_daemon(shared: Fleet) -> None:
    """The sender dies between two keys; the daemon looks for proof, and types only what is missing.

    Break: paste again without checking whether our text is in the box or in the transcript.
    """
    for point in POINTS:
        finished_by_the_daemon(shared, point)


def finished_by_the_daemon(shared: Fleet, point: str) -> None:
    at_rest(shared)
    name = point.replace(".", "-").replace(":", "-")
    shared.llmc(
        "message", "adam", mark_prompt(shared, name), code=-signal.SIGKILL, LLMC_FAULT=f"{point}:kill"
    )
    shared.wake("adam")
    wait_until(lambda: delivery(shared)["outcome"] in ("acknowledged", "queued"), story=lambda: point)
    at_rest(shared)
    wait_until(lambda: marks(shared, name) == 1, story=lambda: point)
    told = shared.status("adam")
    assert told["delivery"] in ("acknowledged", "queued"), point
    assert turns_with(shared, told["prompt_id"]) == 1, point
    assert marks(shared, name) == 1, point


def delivery(fleet: Fleet) -> dict[str, Any]:
    """What is known about the last prompt, without a process for each check."""
    return dict(json.loads((fleet.root / "state.json").read_text())["workers"]["adam"]["delivery"])


@pytest.mark.req("1-056", "1-057", "1-060", "2-026")
def test_faults_that_leave_the_agent_alive(shared: Fleet) -> None:
    """One fault after another, on one agent: each starts and ends with an idle agent, and names its break."""
    a_swallowed_enter_is_pressed_again(shared)
    an_enter_that_never_works_is_unconfirmed_and_taken_back(shared)
    an_open_dialog_is_never_answered(shared)
    a_persons_draft_is_left_alone(shared)
    a_running_turn_queues_it(shared)
    killed_while_typing_then_finished_by_the_daemon(shared)


@pytest.mark.soak
def test_a_short_prompt_whose_enter_never_works(shared: Fleet) -> None:
    """A box of one line instead of a placeholder. Break: as above."""
    an_enter_that_never_works_is_unconfirmed_and_taken_back(shared, lines=1)


def test_a_paste_that_is_shown_late_is_known_again(scripted: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle agent that has not yet drawn the paste. Break: mistake our own text for the user's draft."""
    fleet, frozen = scripted, scripted.dir / "frozen"
    late_screen.write(fleet.dir / "agent", frozen)
    fleet.env |= {"LLMC_AGENT": str(fleet.dir / "agent"), "CLAUDE_CONFIG_DIR": str(fleet.config_dir)}
    fleet.config_dir.mkdir()
    seed_config(fleet.config_dir, [fleet.root])
    fleet.set_up("adam")
    fleet.up()
    found: list[_Trace] = []
    look = Typist._trace_of_an_earlier_try

    def drawn_after_the_look(typist: Typist) -> _Trace:
        found.append(look(typist))
        frozen.unlink()
        os.kill(typist.pane.pid, signal.SIGWINCH)  # it draws everything
        wait_until(typist._box_is_ours)
        return found[-1]

    frozen.touch()
    with fleet.frozen_daemon():
        killed = {"LLMC_FAULT": "submit.paste:after:kill"}
        fleet.llmc("message", "adam", mark_prompt(fleet, "late"), code=-signal.SIGKILL, **killed)
        monkeypatch.setattr(Typist, "_trace_of_an_earlier_try", drawn_after_the_look)
        project = open_project(str(fleet.root))
        with project.worker_lock("adam"):
            assert submit.deliver(project, "adam").outcome.arrived
    assert found == [_Trace.NONE], "it was idle, and nothing was visible"
    wait_until(lambda: marks(fleet, "late") == 1)
    assert turns_with(fleet, fleet.status("adam")["prompt_id"]) == 1


def test_a_client_that_is_busy_for_a_moment_after_its_stop(
    scripted: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: refuse a task because the client has not updated its status yet."""
    scripted.set_up("adam")
    scripted.up()
    real, until = Typist._status, time.monotonic() + 1.0
    busy = lambda typist: ClientStatus.BUSY if time.monotonic() < until else real(typist)  # noqa: E731
    monkeypatch.setattr(Typist, "_status", busy)
    project = open_project(str(scripted.root))
    with scripted.frozen_daemon(), project.worker_lock("adam"):
        assert start_task(project, "adam", mark_prompt(scripted, "busy")).outcome.arrived
    wait_until(lambda: marks(scripted, "busy") == 1)


@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_the_daemon_dies_between_paste_and_enter(fleet: Fleet) -> None:
    """Sender and daemon die one after the other; the next daemon finishes the delivery, once."""
    fleet.set_up("adam")
    fleet.up()
    fleet.llmc("down")
    fleet.env["LLMC_FAULT"] = "submit.enter:before:kill"
    fleet.up()
    del fleet.env["LLMC_FAULT"]
    fleet.llmc(
        "message",
        "adam",
        mark_prompt(fleet, "twice"),
        code=-signal.SIGKILL,
        LLMC_FAULT="submit.persist:after:kill",
    )
    daemon = fleet.daemon_pid()
    fleet.wake("adam")
    wait_until(lambda: not is_alive(daemon))
    assert fleet.status("adam")["delivery"] == "typed"
    assert marks(fleet, "twice") == 0
    fleet.up()
    wait_until(lambda: delivery(fleet)["outcome"] == "acknowledged")
    wait_until(lambda: marks(fleet, "twice") == 1)
    at_rest(fleet)
    assert marks(fleet, "twice") == 1
    assert turns_with(fleet, fleet.status("adam")["prompt_id"]) == 1


@pytest.mark.req("2-028")
@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_a_dead_pane_is_refused_and_tmux_survives(fleet: Fleet) -> None:
    """Break: drop the if-shell guard of paste; tmux 3.3a dies with every session."""
    fleet.set_up("adam", "baker")
    fleet.up()
    pid = int(fleet.tmux("display-message", "-p", "-t", fleet.session("adam"), "#{pane_pid}"))
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))  # tmux may not know yet
    sent = fleet.llmc("message", "adam", "hello", "--json", code=3).json
    assert sent.get("outcome", "refused") == "refused"
    fleet.wait("adam", "offline")
    assert fleet.status("adam")["cause"] == "crash"
    assert "137" in fleet.status("adam")["error_reason"]
    assert fleet.status("baker")["status"] == "idle"


@pytest.mark.soak
@pytest.mark.req("1-056", "1-057")
def test_an_agent_that_reads_its_keys_late_has_the_prompt_once(scripted: Fleet) -> None:
    """Break: report `unconfirmed` without checking what the agent has done since, or mistake an agent that
    waits for a processor for an idle one.
    """
    fleet, starved = scripted, scripted.dir / "starved"
    starved_agent.write(fleet.dir / "agent", starved)
    fleet.env["LLMC_AGENT"] = str(fleet.dir / "agent")
    fleet.env["CLAUDE_CONFIG_DIR"] = str(fleet.config_dir)
    fleet.config_dir.mkdir()
    seed_config(fleet.config_dir, [fleet.root])
    fleet.set_up("adam")
    fleet.up()
    starved.touch()
    tries_s = SETTLE_S + PROOF_WAIT_S * ENTERS
    # Whether it is busy counts only from the last Enter on: before that it need not burn a processor.
    threading.Timer(tries_s - 1, starved.write_text, [starved_agent.AWAKE]).start()
    # After the last Enter, and after the second in which a running agent would have gone idle.
    threading.Timer(tries_s + REST_S + 1, starved.unlink).start()
    sent = fleet.llmc("message", "adam", mark_prompt(fleet, "late"), "--json").json
    assert (starved.exists(), sent["outcome"]) == (False, "acknowledged")
    at_rest(fleet)
    assert (marks(fleet, "late"), turns_with(fleet, sent["prompt_id"])) == (1, 1)
