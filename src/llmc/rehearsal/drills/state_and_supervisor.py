"""Drills: llmc's own files, and the supervisor (rows 20 to 27)."""

import os
import signal

from llmc.base import processes
from llmc.rehearsal.drills.scratch import PATIENCE_S, Scratch, overwrite


def state_corrupt(scratch: Scratch) -> None:
    scratch.at_work("llmc doctor --rebuild --yes")
    scratch.breaks_now()
    with scratch.state_is_mine():
        for name in ("state.json", "state.json.bak"):
            (scratch.root / name).write_text("{ no state")
    _recovers(scratch)


def state_overwritten(scratch: Scratch) -> None:
    """A process overwrites the state with an empty fleet, as a test in the wrong root would."""
    scratch.at_work("llmc doctor --rebuild --yes")
    scratch.breaks_now()
    with scratch.state_is_mine():
        overwrite(scratch.root / "state.json", '{"workers": {}}')
    _recovers(scratch)


def config_broken(scratch: Scratch) -> None:
    config = scratch.root / "config.toml"
    scratch.at_work(f"sed -i '/^no toml/d' {config}")
    scratch.breaks_now()
    config.write_text(config.read_text() + "no toml [\n")
    scratch.open("go")
    scratch.noticed("failure:")
    scratch.all_landed()


def socket_gone(scratch: Scratch) -> None:
    scratch.at_work()
    scratch.breaks_now()
    scratch.project().root.wake_socket().unlink()
    _recovers(scratch)


def permissions_gone(scratch: Scratch) -> None:
    """Make .llmc read-only."""
    own = scratch.root / ".llmc"
    scratch.at_work(f"chmod 700 {own}")
    scratch.breaks_now()
    own.chmod(0o500)
    try:
        _recovers(scratch)
    finally:
        own.chmod(0o700)


def loop_hangs(scratch: Scratch) -> None:
    """Freeze the daemon."""
    first = scratch.at_work()
    scratch.breaks_now()
    os.kill(first, signal.SIGSTOP)
    _recovers(scratch, "heartbeat failure:", 90)


def start_hangs(scratch: Scratch) -> None:
    """A daemon registers, but never starts its agents."""
    scratch.create()
    scratch.variables.write_text("export LLMC_STUCK_S=3 LLMC_FAULT=session.launch:before:hang\n")
    scratch.remedy(f"rm {scratch.variables}")
    scratch.task(1)
    scratch.breaks_now()
    scratch.supervise(ready=False)
    scratch.noticed("log failure:", "work on auto-1")
    scratch.all_landed(90)


def overseer_session_dies(scratch: Scratch) -> None:
    """The remediation agent is killed during a remediation."""
    fixed, tried = scratch.directory / "fixed", scratch.directory / "tried"
    check = f"test -e {fixed} || {{ echo the build is red; exit 1; }}"
    scratch.create(**{"auto.post_accept_command": check})
    scratch.remedy(f"test -e {tried} || {{ touch {tried}; {scratch.gate('never')}; }}; touch {fixed}")
    scratch.task(1)
    scratch.task(2, after=(1,))
    scratch.supervise()
    scratch.until(tried.exists, "the remediation agent is running")
    scratch.breaks_now()
    os.kill(scratch.agent_pid("overseer"), signal.SIGKILL)
    scratch.seen(
        lambda: "restarting the remediation session" in scratch.said(), "the supervisor restarts the agent"
    )
    scratch.all_landed()


def bad_fix(scratch: Scratch) -> None:
    """The agent reports a fix that does not work."""
    _broken_build(scratch, "true")
    scratch.breaks_now()
    scratch.supervise()
    scratch.noticed("failure:")
    scratch.require(scratch.ended() == 10, "the supervisor exits with code 10")


def remediation_hangs(scratch: Scratch) -> None:
    _broken_build(scratch, scratch.gate("never"), **{"overseer.remediation_timeout_secs": "5"})
    scratch.supervise()
    began = scratch.until(lambda: scratch.events("overseer_remediation"), "the remediation agent started")
    scratch.breaks_now()
    scratch.fault_unix = float(began[0]["ts"])
    scratch.detected("overseer_remediation", outcome="timeout")
    scratch.require(scratch.ended() == 10, "the supervisor exits with code 10")


def remediation_fails(scratch: Scratch) -> None:
    """The agent cannot fix it, and requests manual intervention."""
    _broken_build(scratch, "echo get a new key > $LLMC_ROOT/.llmc/manual_intervention_needed_1.txt")
    scratch.breaks_now()
    scratch.supervise()
    scratch.noticed("failure:")
    scratch.require(scratch.ended() == 11, "the supervisor exits with code 11")
    scratch.require("get a new key" in scratch.said(), "the supervisor shows the agent's request")


def other_daemon(scratch: Scratch) -> None:
    """Replace the daemon between two checks of the supervisor."""
    first = scratch.at_work()
    os.kill(scratch.supervisor_pid, signal.SIGSTOP)
    scratch.breaks_now()
    os.kill(first, signal.SIGKILL)
    scratch.llmc("up", "--auto", "--detach")
    other = scratch.daemon(other_than=first)
    os.kill(scratch.supervisor_pid, signal.SIGCONT)
    _recovers(scratch, "identity failure:")
    scratch.require(not processes.is_alive(other), "the other daemon has exited")


def _recovers(scratch: Scratch, words: str = "failure:", limit_s: float = PATIENCE_S) -> None:
    """The supervisor reports the fault, and the agent's work lands."""
    scratch.noticed(words)
    scratch.open("go")
    scratch.all_landed(limit_s)


def _broken_build(scratch: Scratch, remedy: str, **settings: str) -> None:
    """A fleet whose post-accept command fails after the first of two tasks."""
    scratch.create(**{"auto.post_accept_command": "echo the build is red; exit 1", **settings})
    scratch.remedy(remedy)
    scratch.task(1)
    scratch.task(2, after=(1,), expected=False)
