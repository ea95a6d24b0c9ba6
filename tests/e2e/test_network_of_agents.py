"""The network of contained agents: what they reach, what is refused and reported, what is left afterwards."""

import os
import shlex
import signal
import time

import pytest

from llmc.base.processes import Process, command_of, identify
from llmc.config.root_layout import tmux_server
from tests.support.contained import needs_bubblewrap
from tests.support.fleet import Fleet
from tests.support.loopback_api import LoopbackApi
from tests.support.waiting import wait_until
from tests.support.web_server import web_server

pytestmark = needs_bubblewrap

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"
CONTAINED = {"defaults.sandbox": "on"}


def says(fleet: Fleet, script: str) -> str:
    """What an agent's script printed. Its work is then discarded."""
    inner = shlex.quote(f"exec > said.txt 2>&1; {script}; true")
    fleet.llmc("start", "--worker", "adam", "--prompt", f"@sh sh -c {inner}; git add -A; {COMMIT} 'Tried'")
    fleet.wait("adam", "needs_review")
    said = (fleet.worktree("adam") / "said.txt").read_text()
    fleet.llmc("reset", "adam")
    return said


def proxies(fleet: Fleet) -> list[Process]:
    """The proxies of this fleet, by their command line."""
    found = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    named = [pid for pid in found if f"{fleet.root}/.llmc/home/" in command_of(pid)]
    ours = [pid for pid in named if "llmc.sandbox.proxy" in command_of(pid)]
    return [process for pid in ours if (process := identify(pid)) is not None]


def test_what_is_refused_is_told_once_with_the_command_that_allows_it(scripted: Fleet) -> None:
    """And the command works for the running agent. Break: no `settle` in sessions/intake.py."""
    scripted.env |= {"GITHUB_TOKEN": "of-a-person", "DATABASE_URL": "of-a-person", "SHOWN_NAME": "shown"}
    hosts = {"sandbox.hosts": '["listed.example"]', "sandbox.env": '["SHOWN_*"]'}
    scripted.set_up("adam", config={**CONTAINED, **hosts, "defaults.patrol_interval_secs": "600"})
    scripted.up()
    with web_server() as port:
        ask = f"curl -s -m 9 --noproxy '' http://127.0.0.1:{port}/"
        said = says(
            scripted, f"env; curl -s -m 9 http://127.0.0.1:{port}/; {ask}; {ask}; curl -sI evil.example"
        )
        assert "hello" not in said
        assert "of-a-person" not in said
        assert "SHOWN_NAME=shown" in said
        here, there = f"127.0.0.1:{port}", "evil.example:80"
        assert [(row["worker"], row["host"]) for row in scripted.events("host_refused")] == [
            ("adam", here),
            ("adam", there),
        ]
        wait_until(lambda: [row["tries"] for row in scripted.status("adam")["refused_hosts"]] == [2, 1])
        listed = scripted.llmc("status", "--json").json["attention"]
        (item,) = [one for one in listed if one["kind"] == "refused_hosts"]
        command = f"""llmc config set sandbox.hosts '["listed.example", "{here}", "evil.example"]'"""
        assert item["next"] == command
        assert f"could not connect to {here}: it is not in sandbox.hosts" in scripted.llmc("logs", "adam").out
        digest = " ".join(scripted.llmc("digest").out.split())
        assert "Refused connections (2)" in digest
        assert f"{here} (adam, 2 attempts): it is not in sandbox.hosts" in digest
        assert f"to allow them: {command}" in digest
        scripted.llmc(*shlex.split(command)[1:])
        scripted.wake("adam")
        wait_until(lambda: scripted.record("adam")["refused_hosts"] == [])
        assert says(scripted, ask) == "hello"
    assert "refused_hosts" not in scripted.llmc("status", "--json").out.partition('"attention"')[2]


@pytest.mark.soak
def test_the_web_page_and_the_tmux_server_do_not_answer(scripted: Fleet) -> None:
    scripted.set_up("adam", config=CONTAINED)
    scripted.up()
    url = scripted.llmc("web", "--detach", "--port", "0", "--json").json["url"]
    try:
        server = tmux_server(str(scripted.root))
        path = f"/tmp/tmux-{os.getuid()}/{server}"
        said = says(
            scripted,
            f"curl -s -m 9 -o /dev/null {shlex.quote(url)} && echo REACHED; "
            f"curl -s -m 9 -o /dev/null -f --noproxy '' {shlex.quote(url)} && echo REACHED; "
            f"curl -s -m 9 --unix-socket {path} http://x/ && echo REACHED; "
            f"curl -s -m 9 --abstract-unix-socket {path} http://x/ && echo REACHED; tmux -S {path} ls && echo REACHED",
        )
        assert "REACHED" not in said
    finally:
        scripted.llmc("web", "--stop")


@pytest.mark.soak
def test_a_proxy_needs_no_daemon_and_ends_with_its_agent(scripted: Fleet) -> None:
    """Also during a turn, and after SIGKILL of the holder. Break: start the proxy in the daemon."""
    scripted.set_up("adam", "eve", config=CONTAINED)
    with web_server() as port:
        scripted.configure({"sandbox.hosts": f'["127.0.0.1:{port}"]'})
        scripted.up()
        assert len(proxies(scripted)) == 2
        ask = f"curl -s -m 9 --noproxy '' http://127.0.0.1:{port}/ >> said.txt"
        wait = "while [ ! -e go ]; do sleep 0.1; done"
        scripted.llmc(
            "start",
            "--worker",
            "adam",
            "--prompt",
            f"@sh {ask}; {wait}; {ask}; git add said.txt; {COMMIT} 'Asked'",
        )
        wait_until((scripted.worktree("adam") / "said.txt").exists)
        before = proxies(scripted)
        scripted.kill_daemon()
        assert proxies(scripted) == before
        (scripted.worktree("adam") / "go").touch()
        wait_until(lambda: (scripted.worktree("adam") / "said.txt").read_text() == "hellohello")
        scripted.up()
        scripted.wait("adam", "needs_review")
    assert proxies(scripted) == before
    pane = int(scripted.tmux("display-message", "-p", "-t", scripted.session("eve"), "#{pane_pid}").strip())
    os.kill(pane, signal.SIGKILL)
    wait_until(lambda: len(proxies(scripted)) == 1)
    scripted.llmc("down")
    wait_until(lambda: proxies(scripted) == [])


@pytest.mark.soak
@pytest.mark.real_client
def test_the_client_reaches_its_model_by_the_proxy(api: LoopbackApi) -> None:
    """Elsewhere its model is on loopback, with the port passed on; this address is reached only by proxy."""
    fleet = Fleet("claude", api)
    try:
        fleet.env["ANTHROPIC_BASE_URL"] = api.url.replace("127.0.0.1", "0.0.0.0")
        for name in [name for name in fleet.env if "DISABLE_" in name]:
            del fleet.env[name]  # by default it checks for news and plugins, which would be refused
        fleet.set_up("adam", config=CONTAINED)
        fleet.up()
        began = time.monotonic()
        work = f"@sh env > env.txt; echo 1 > one; git add one; {COMMIT} 'One'\n@say done"
        fleet.llmc("start", "--prompt", work)
        assert fleet.wait("adam", "needs_review", 60)["commit_sha"]
        assert time.monotonic() - began < 60
        told = (fleet.worktree("adam") / "env.txt").read_text().splitlines()
        assert "HTTPS_PROXY=http://127.0.0.1:3128" in told
        assert fleet.record("adam")["refused_hosts"] == []
    finally:
        fleet.close()


@pytest.mark.soak
@pytest.mark.real_client
def test_the_client_reaches_its_model_again_after_its_proxy_was_killed(api: LoopbackApi) -> None:
    fleet = Fleet("claude", api)
    try:
        fleet.set_up("adam", config=CONTAINED)
        fleet.up()
        (first,) = proxies(fleet)
        os.kill(first.pid, signal.SIGKILL)
        wait_until(lambda: proxies(fleet) not in ([], [first]))
        fleet.llmc("start", "--prompt", f"@sh echo 1 > one; git add one; {COMMIT} 'One'\n@say done")
        assert fleet.wait("adam", "needs_review", 60)["commit_sha"]
    finally:
        fleet.close()
