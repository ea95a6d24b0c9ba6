"""Fault points: `LLMC_FAULT=<step>:<before|after>:<kill|hang|fail>[:n]` (several with commas).

The crash tests use them to kill llmc at a named step. `n` counts from 1 and picks the n-th
time this process passes the point; the default is the first.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from llmc.base.errors import LlmcError, UsageError

_passed: Counter[tuple[str, str]] = Counter()
_HOW = ("kill", "hang", "fail")

#: all fault points; a test walks them, and an unknown name in LLMC_FAULT is an error
STEPS = (
    "start.persist",
    *("submit.persist", "submit.clear", "submit.paste", "submit.enter", "submit.receipt", "submit.record"),
    *("intake.apply", "intake.forget"),
    "rebase.collapse",
    "restore.files",
    *("rebase.persist", "rebase.run", "rebase.record", "rebase.prompt"),
    *("self_review.prompt", "self_review.give_up"),
    "rebase.validate",
    *("accept.check", "accept.merge", "accept.validate", "accept.land", "accept.wait", "accept.verify"),
    *("accept.complete", "accept.reset", "accept.finish"),
    *("undo.revert", "undo.validate", "undo.land", "undo.verify", "undo.return", "undo.finish"),
    *("claim.ledger", "claim.file", "claim.record", "claim.complete", "claim.release", "claim.take_back"),
    *("task.created", "task.made"),
    "worker_task.mark",
    *("task_pool.ask", "task_pool.add"),
    *("auto.begin", "auto.post_accept"),
    *("reset.cancel", "reset.quiet", "reset.tree", "reset.finish"),
    *("provision.reset", "provision.clean"),
    *("nuke.end", "nuke.pin", "nuke.move", "nuke.prune", "nuke.forget", "nuke.finish"),
    *("uninstall.workers", "uninstall.end", "uninstall.outside", "uninstall.root"),
    *("repair.pin", "repair.remove"),
    "guard.undo",
    "unshare.copy",
    *("fence.move", "handed.push", "probe.made"),
    *("remote.enter", "remote.push", "remote.follow"),
    *("contain.pin", "contain.move"),
    "session.launch",
    "usage.record",
    "logs.rotate",
    "review.send",
    *("notify.record", "notify.send", "notify.told"),
    *("goals.dispatch", "goals.spawn", "goals.withdraw", "goals.outcome", "goals.write", "goals.set_aside"),
    *("state.write", "state.replace"),
)


class FaultInjected(LlmcError):
    """A fault point failed on request."""


@contextmanager
def step(name: str) -> Iterator[None]:
    """A named step: the faults `before` and `after` it happen here."""
    point(name, "before")
    yield
    point(name, "after")


def point(name: str, when: str) -> None:
    spec = os.environ.get("LLMC_FAULT")
    if not spec:
        return
    if name not in STEPS:
        raise AssertionError(f"fault point {name} is not in STEPS")
    faults = [_parse(fault) for fault in spec.split(",")]
    _passed[name, when] += 1
    for step_name, side, how, turn in faults:
        if (step_name, side, turn) == (name, when, _passed[name, when]):
            _strike(how, f"{name}:{when}:{how}:{turn}")


def _parse(fault: str) -> tuple[str, str, str, int]:
    """Parse a fault into step, side, action and n; validated at every point, not only where it applies."""
    name, side, how, turn = [*fault.split(":"), "1"][:4] if fault.count(":") in (2, 3) else ("", "", "", "")
    good = name in STEPS and side in ("before", "after") and how in _HOW and turn.isdecimal() and int(turn)
    if not good:
        raise UsageError(
            f"LLMC_FAULT: invalid fault {fault!r}; expected <step>:<before|after>:<kill|hang|fail>[:n]",
            hint="Steps: " + " ".join(STEPS),
        )
    return name, side, how, int(turn)


def _strike(how: str, fault: str) -> None:
    match how:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            while True:
                time.sleep(3600)
        case _:
            raise FaultInjected(f"injected fault {fault}")
