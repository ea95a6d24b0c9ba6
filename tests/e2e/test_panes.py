"""An agent is a pane, not a session: the user's own panes and windows beside it stay theirs."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support import auto
from tests.support.fleet import CLIENTS_IN_SOAK, Fleet
from tests.support.people import (
    SHELL,
    Seat,
    a_pane_that_ended,
    attached,
    opens,
    panes,
    screen,
    seat_of,
    shown,
)
from tests.support.waiting import wait_until

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"
clients_in_soak = pytest.mark.parametrize("fleet", CLIENTS_IN_SOAK, indirect=True)


def ready(fleet: Fleet, *workers: str) -> Seat:
    fleet.set_up(*(workers or ("adam",)))
    fleet.up()
    return seat_of(fleet)


def reaches(fleet: Fleet, agent: Seat, text: str) -> None:
    """A message reaches the agent, which is still the same one, and nothing else."""
    sent = fleet.llmc("message", "adam", f"@say heard {text}", "--json", code=None).json
    assert sent["outcome"] in ("acknowledged", "queued"), (sent, fleet.story())
    wait_until(lambda: f"heard {text}" in screen(fleet, agent))
    assert agent.lives
    assert fleet.events("agent_exited") == []


def noticed(fleet: Fleet, agent: Seat, reason: str) -> None:
    """The agent is gone, and llmc knows."""
    wait_until(lambda: not agent.lives)
    fleet.wake("adam")
    assert fleet.wait("adam", "offline")["reason"] == reason


def starts_again(fleet: Fleet, *persons: Seat) -> Seat:
    """`up` launches another agent, and the user's panes are unchanged."""
    before = set(panes(fleet))
    fleet.llmc("up", "--detach")
    assert fleet.status("adam")["status"] in ("idle", "needs_input")
    assert all(person.lives for person in persons)
    (new,) = set(panes(fleet)) - before
    return Seat(new, int(fleet.tmux("display-message", "-p", "-t", new, "#{pane_pid}")))


@clients_in_soak
@pytest.mark.soak
def test_a_dead_pane_in_front_of_the_agent(fleet: Fleet) -> None:
    """Break: find the pane by its session in `panes.find`: the agent is offline; the next `up` ends it."""
    agent = ready(fleet)
    gate = fleet.dir / "gate"
    script = f"{auto.until(gate)}; echo x > x; git add x; {COMMIT} 'In the middle'"
    fleet.llmc("start", "--prompt", f"@sh {script}")
    for command in ("split-window", "new-window"):
        a_pane_that_ended(fleet, command, agent.pane)
        fleet.wake("adam")
        assert fleet.status("adam")["status"] == "working"
    with attached(fleet):
        assert fleet.status("adam")["status"] == "working"
        a_pane_that_ended(fleet, "split-window", agent.pane)
        fleet.wake("adam")
        assert fleet.status("adam")["status"] == "working"
    gate.touch()
    assert fleet.wait("adam", "needs_review")["commit_sha"]
    fleet.llmc("up", "--detach")
    reaches(fleet, agent, "at rest")
    assert [row["why"] for row in fleet.events("hook_ignored")] == []
    fleet.wait("adam", "needs_review")
    fleet.llmc("accept", "adam")
    assert fleet.log() == ["In the middle", "First commit"]


@clients_in_soak
@pytest.mark.soak
def test_an_agent_that_is_killed_beside_a_shell(fleet: Fleet) -> None:
    """Break: as above, reversed: a dead agent is `needs_input` as long as the shell is in front."""
    agent, shells = ready(fleet), []
    for command in ("split-window", "new-window"):
        shells.append(opens(fleet, command, *SHELL, target=agent.pane))
        os.kill(agent.pid, signal.SIGKILL)
        noticed(fleet, agent, "crashed")
        assert fleet.events("agent_exited")[-1]["exit_code"] == 137, command
        peeked = fleet.llmc("peek", "adam", "--json").json
        assert (peeked["dead"], peeked["exit_code"]) == (True, 137), command
        new = starts_again(fleet, *shells)
        reaches_new = fleet.llmc("message", "adam", f"@say back, {command}", "--json", code=None).json
        assert reaches_new["outcome"] == "acknowledged", command
        wait_until(lambda new=new, command=command: f"back, {command}" in screen(fleet, new))  # type: ignore[misc]
        assert agent.pane not in panes(fleet), f"the dead pane is removed, {command}"
        agent = new
    fleet.kill_daemon()
    os.kill(agent.pid, signal.SIGKILL)
    wait_until(lambda: not agent.lives)
    wait_until(lambda: fleet.status("adam")["status"] == "offline")
    assert all(shell.lives for shell in shells)


@clients_in_soak
def test_a_message_is_for_the_agent_and_not_for_a_client_of_the_persons(fleet: Fleet) -> None:
    """Break: paste to `=session:`; the user's own client in the second window gets the prompt and runs it."""
    agent = ready(fleet)
    program = [fleet.env["LLMC_AGENT"], "--dangerously-skip-permissions"]
    if fleet.agent == "scripted":
        own = fleet.dir / "own"
        program = ["env", f"CLAUDE_CONFIG_DIR={own}", sys.executable, "-P", "-m", "llmc.agents.scripted"]
    else:
        program = ["env", *(f"{name}={value}" for name, value in fleet.env.items()), *program]
    client = opens(fleet, "new-window", "-c", str(fleet.worktree("adam")), *program, target=agent.pane)
    wait_until(lambda: "\u276f\u00a0" in screen(fleet, client), story=lambda: screen(fleet, client))
    fleet.llmc("start", "--prompt", "@say the task")
    fleet.wait("adam", "needs_input")
    reaches(fleet, agent, "a word")
    for text in ("the task", "a word"):
        assert text not in screen(fleet, client)
    assert client.lives


def test_what_is_set_for_a_window_is_not_for_the_agent(scripted: Fleet) -> None:
    """Break: leave `synchronize-panes off` out of `_marks`; its keys are also typed into the shell.

    Or set `remain-on-exit` for the session instead of the pane; how the agent ended would be lost with it.
    """
    agent = ready(scripted)
    shell = opens(scripted, "split-window", *SHELL, target=agent.pane)
    wait_until(lambda: "mine$" in screen(scripted, shell))
    scripted.tmux("set-option", "-w", "-t", agent.pane, "synchronize-panes", "on")
    reaches(scripted, agent, "past the shell")
    scripted.tmux("send-keys", "-t", shell.pane, "echo over", "Enter")
    wait_until(lambda: "\nover" in screen(scripted, shell))
    typed = [line.rstrip() for line in screen(scripted, shell).splitlines() if line.strip()]
    assert typed[:2] == ["mine$ echo over", "over"], "nothing came before it, not even an Enter"
    reaches(scripted, agent, "and once more")
    for scope in ("-g", "-w"):
        scripted.tmux(
            "set-option", scope, *(["-t", agent.pane] if scope == "-w" else []), "remain-on-exit", "off"
        )
    os.kill(agent.pid, signal.SIGKILL)
    noticed(scripted, agent, "crashed")
    assert scripted.events("agent_exited")[-1]["exit_code"] == 137


#: how a real client is moved in `make test`: less room, another session's window, a renamed session
MOVES_OF_CLIENTS = ("swap-pane across sessions", "join-pane", "rename-session")


@clients_in_soak
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["some", "all"])
@pytest.mark.soak
def test_wherever_a_person_moves_it(fleet: Fleet, every: bool) -> None:
    """Break: look for the pane in the recorded session; or target `=session:%N`, which is another pane."""
    agent = ready(fleet)
    own = opens(fleet, "new-session", "-d", "-s", "own", *SHELL)
    shell = opens(fleet, "split-window", *SHELL, target=agent.pane)
    name = fleet.session("adam").strip("=:")
    moves = {
        "select-pane": ["select-pane", "-t", shell.pane],
        "zoomed": ["resize-pane", "-Z", "-t", shell.pane],
        "swap-pane": ["swap-pane", "-s", agent.pane, "-t", shell.pane],
        "swap-pane across sessions": ["swap-pane", "-s", agent.pane, "-t", own.pane],
        "join-pane": ["join-pane", "-h", "-s", agent.pane, "-t", shell.pane],
        "break-pane": ["break-pane", "-d", "-s", agent.pane],
        "rename-session": ["rename-session", "-t", f"={name}", "hers"],
        "rename-window": ["rename-window", "-t", agent.pane, "a.b:c"],
    }
    for what, command in moves.items():
        if fleet.agent != "scripted" and not every and what not in MOVES_OF_CLIENTS:
            continue
        fleet.tmux(*command)
        reaches(fleet, agent, f"after {what}")
        assert f"after {what}" in fleet.llmc("peek", "adam").out
    assert "does not belong to any worker" not in fleet.llmc("doctor", code=None).out
    fleet.llmc("up", "--detach")
    assert agent.lives
    said = fleet.llmc("down")
    assert "panes that you opened are still running" in said.err
    assert not agent.lives
    assert own.lives
    assert shell.lives


@pytest.mark.soak
def test_an_agent_whose_pane_a_person_took(scripted: Fleet) -> None:
    """Break: leave the process out of the marks; llmc would type into a shell in the agent's own pane."""
    agent = ready(scripted)
    persons = [opens(scripted, "new-session", "-d", "-s", "own", *SHELL)]
    for how in ("kill-pane", "respawn-pane", "kill-session"):
        beside = opens(scripted, "new-window", *SHELL, target=agent.pane)
        persons.append(beside)
        match how:
            case "kill-pane":
                scripted.tmux("kill-pane", "-t", agent.pane)
            case "respawn-pane":
                scripted.tmux("respawn-pane", "-k", "-t", agent.pane, *SHELL)
                persons.append(Seat(agent.pane, int(shown(scripted, agent, "#{pane_pid}"))))
            case _:
                session = shown(scripted, agent, "#{session_id}")
                ends = scripted.tmux("list-panes", "-s", "-t", session, "-F", "#{pane_id}").split()
                persons = [person for person in persons if person.pane not in ends]
                scripted.tmux("kill-session", "-t", session)
        noticed(scripted, agent, "session gone")
        refused = scripted.llmc("message", "adam", "@say anybody", "--json", code=None)
        assert refused.code == 3, how
        agent = starts_again(scripted, *persons)
        scripted.llmc("reset", "adam", "--yes")
        scripted.llmc("start", "--prompt", f"@say again after {how}")
        scripted.wait("adam", "needs_input")
        assert all("again" not in screen(scripted, person) for person in persons), how
    scripted.llmc("down")
    assert all(person.lives for person in persons)


@clients_in_soak
def test_another_tmux_server_has_the_same_pane_ids(fleet: Fleet) -> None:
    """Break: trust the id without the mark: a user's shell is `%0` of the new server, as the agent was."""
    agent = ready(fleet)
    fleet.kill_daemon()
    fleet.tmux("kill-server")
    wait_until(lambda: not agent.lives)
    stranger = opens(fleet, "new-session", "-d", "-s", fleet.session("adam").strip("=:"), *SHELL)
    assert stranger.pane == agent.pane
    wait_until(lambda: "mine$" in screen(fleet, stranger))
    assert fleet.status("adam")["status"] == "offline"
    assert fleet.llmc("message", "adam", "@say anybody", code=None).code == 3
    new = starts_again(fleet, stranger)
    reached = fleet.llmc("start", "--prompt", "@say me", "--json").json
    assert reached["outcome"] == "acknowledged"
    wait_until(lambda: "me" in screen(fleet, new))
    assert screen(fleet, stranger).strip() == "mine$"
    left = fleet.llmc("down", "--json").json["left"]
    assert [row["pane"] for row in left] == [stranger.pane]
    assert stranger.lives


@pytest.mark.soak
def test_what_a_person_opened_stays(scripted: Fleet) -> None:
    """Break: kill-session in `sessions.end`, or kill-server in `close_server`."""
    agent = ready(scripted, "adam", "baker")
    shell = opens(scripted, "split-window", *SHELL, target=agent.pane)
    window = opens(scripted, "new-window", *SHELL, target=scripted.session("baker"))
    scripted.llmc("start", "--worker", "adam", "--prompt", "@hang")
    scripted.llmc("reset", "adam", "--yes")
    assert (shell.lives, window.lives) == (True, True)
    scripted.llmc("nuke", "baker", "--yes")
    assert (shell.lives, window.lives) == (True, True)
    assert "does not belong to any worker" not in scripted.llmc("doctor", code=None).out
    said = scripted.llmc("down")
    assert "bash" in said.err
    assert f"llmc-{scripted.root.name}-adam" in said.err
    assert (shell.lives, window.lives) == (True, True)
    assert sorted(panes(scripted)) == sorted([shell.pane, window.pane])
    scripted.up()
    assert scripted.status("adam")["status"] == "idle"
    (scripted.root / "state.json").write_text("{broken")
    scripted.llmc("down", "--force", code=None)
    assert sorted(panes(scripted)) == sorted([shell.pane, window.pane])
    for seat in (shell, window):
        scripted.tmux("kill-pane", "-t", seat.pane)
    scripted.llmc("down", "--force", code=None)
    assert panes(scripted) == []


def test_an_agent_of_nobodys_is_ended_and_the_shell_beside_it_stays(scripted: Fleet) -> None:
    """Break: kill-session in `end_stray`."""
    agent = ready(scripted)
    shell = opens(scripted, "split-window", *SHELL, target=agent.pane)
    scripted.kill_daemon()
    state = json.loads((scripted.root / "state.json").read_text())
    state["workers"]["adam"]["instance"] = "0ther"
    state["workers"]["adam"]["session_id"] = "elsewhere"
    (scripted.root / "state.json").write_text(json.dumps(state))
    assert "does not belong to any worker" in scripted.llmc("doctor", code=None).out
    scripted.llmc("doctor", "--repair", "--yes", code=None)
    wait_until(lambda: not agent.lives)
    assert shell.lives


def test_a_commit_at_the_moment_a_second_pane_ends(scripted: Fleet) -> None:
    """Break: treat the end of any pane as the agent's: the commit is trashed, and the task is done again."""
    fleet = auto.set_up(scripted)
    gate = fleet.dir / "gate"
    auto.add(fleet, 1, auto.commit(1, f"touch {fleet.dir}/began; {auto.until(gate)}"))
    fleet.up("--auto")
    wait_until((fleet.dir / "began").exists, 40)
    agent = seat_of(fleet, "auto-1")
    fleet.tmux("set-option", "-g", "remain-on-exit", "on")
    opens(fleet, "split-window", "sh", "-c", f"touch {gate}; exit 0", target=agent.pane)
    auto.wait_completed(fleet, 1)
    assert auto.landed(fleet) == [1]
    assert [row["task_id"] for row in fleet.events("task_assigned")] == ["1"]
    assert fleet.events("task_failed") == fleet.events("agent_exited") == []
    assert agent.lives


@clients_in_soak
@pytest.mark.soak
def test_an_agent_of_an_older_llmc_goes_on(fleet: Fleet) -> None:
    """Break: treat a pane without marks as gone: the new version's `up` would end every older agent.

    The older version set nothing on panes, had a hook for the whole session, and stored no pane id.
    """
    agent = ready(fleet, "adam", "baker")
    fleet.llmc("start", "--worker", "adam", "--prompt", "@say the task")
    fleet.wait("adam", "needs_input")
    fleet.kill_daemon()
    as_before(fleet, "adam", agent)
    shell = opens(fleet, "split-window", *SHELL, target=agent.pane)
    assert fleet.status("adam")["status"] == "needs_input"
    a_pane_that_ended(fleet, "split-window", agent.pane)
    assert fleet.status("adam")["status"] == "needs_input"
    reaches(fleet, agent, "before up")
    fleet.up()
    assert agent.lives
    assert [row["worker"] for row in fleet.events("session_launched")].count("adam") == 1
    reaches(fleet, agent, "after up")
    a_pane_that_ended(fleet, "split-window", agent.pane)
    reaches(fleet, agent, "once more")
    os.kill(agent.pid, signal.SIGKILL)
    fleet.wake("adam")
    assert fleet.wait("adam", "offline")["reason"] == "crashed"
    assert shell.lives


@pytest.mark.soak
def test_an_agent_of_an_older_llmc_that_has_died(scripted: Fleet) -> None:
    """Break: let a shell that is left in the session count as the agent."""
    agent, shells = ready(scripted), []
    for dead in (False, True):
        scripted.kill_daemon()
        as_before(scripted, "adam", agent)
        shells.append(opens(scripted, "split-window", *SHELL, target=agent.pane))
        if dead:
            os.kill(agent.pid, signal.SIGKILL)
        else:
            scripted.tmux("kill-pane", "-t", agent.pane)
        wait_until(lambda agent=agent: not agent.lives)  # type: ignore[misc]
        wait_until(lambda: scripted.status("adam")["status"] == "offline")
        agent = starts_again(scripted, *shells)


def as_before(fleet: Fleet, worker: str, agent: Seat) -> None:
    """What the previous version left of a launch."""
    for option in ("@llmc", "@llmc_pid", "@llmc_worker", "remain-on-exit", "synchronize-panes"):
        fleet.tmux("set-option", "-pu", "-t", agent.pane, option)
    hook = fleet.tmux("show-hooks", "-p", "-t", agent.pane, "pane-died").partition(" ")[2].strip()
    if hook:
        fleet.tmux("set-hook", "-pu", "-t", agent.pane, "pane-died")
        fleet.tmux("set-hook", "-t", fleet.session(worker), "pane-died", hook.replace(" #{hook_pane}", ""))
    fleet.tmux("set-option", "-g", "remain-on-exit", "on")
    path = Path(fleet.root / "state.json")
    state = json.loads(path.read_text())
    state["workers"][worker].pop("pane_id", None)
    path.write_text(json.dumps(state))


@clients_in_soak
@pytest.mark.soak
def test_an_agent_that_has_little_room(fleet: Fleet) -> None:
    """The user's terminal is small and split: the agent has a third of it, where our text takes many lines.

    Break: capture the window's active pane in `_box`, or judge its lines by a width of our own.
    """
    agent = ready(fleet)
    fleet.tmux("resize-window", "-t", agent.pane, "-x", "100", "-y", "30")
    shell = opens(fleet, "split-window", "-h", *SHELL, target=agent.pane)
    fleet.tmux("resize-pane", "-t", agent.pane, "-x", "36")
    assert shown(fleet, agent, "#{pane_width}") == "36"
    fleet.llmc("start", "--prompt", f"@say {'the task, ' * 12}")
    fleet.wait("adam", "needs_input")
    for text in ("one\ntwo\nthree", "words and words " * 14, "x" * 250):
        sent = fleet.llmc("message", "adam", f"@say short\n{text}", "--json", code=None).json
        assert sent["outcome"] in ("acknowledged", "queued"), (sent, screen(fleet, agent))
        wait_until(lambda text=text: any(text.rstrip() in said for said in fleet.prompts_in_transcripts()))  # type: ignore[misc]
    assert screen(fleet, shell).strip() == "mine$"
    with attached(fleet, columns=60):
        assert shown(fleet, agent, "#{pane_active}") == "1"
    reaches(fleet, agent, "afterwards")
