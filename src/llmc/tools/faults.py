"""Fault points: `LLMC_FAULT=<step>:<before|after>:<kill|hang|fail>[:n]` (several with commas).

The crash tests and `llmc drill` use them to kill llmc at a named step. `n` counts from 1 and picks the n-th
time this process passes the point; the default is the first.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from llmc.errors import LlmcError, UsageError

_passed: Counter[tuple[str, str]] = Counter()

#: every fault point there is; a test walks them, and a wrong name in LLMC_FAULT is an error
STEPS = (
    "start.persist",
    "submit.persist",
    "submit.clear",
    "submit.paste",
    "submit.enter",
    "submit.receipt",
    "submit.record",
    "intake.apply",
    "intake.forget",
    "accept.check",
    "accept.rebase",
    "accept.validate",
    "accept.squash",
    "accept.land",
    "accept.verify",
    "accept.reset",
    "accept.finish",
    "session.launch",
    "state.write",
    "state.replace",
)


class FaultInjected(LlmcError):
    """A fault point was told to fail here."""


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
    for fault in spec.split(","):
        _strike(fault.split(":"), name, when)


def _strike(parts: list[str], name: str, when: str) -> None:
    if len(parts) not in (3, 4) or parts[0] not in STEPS or parts[1] not in ("before", "after"):
        raise UsageError(
            f"LLMC_FAULT: {':'.join(parts)!r} is not <step>:<before|after>:<kill|hang|fail>[:n]",
            hint="Steps: " + " ".join(STEPS),
        )
    if (parts[0], parts[1]) != (name, when):
        return
    _passed[name, when] += 1
    if _passed[name, when] != int(parts[3] if len(parts) == 4 else 1):
        return
    match parts[2]:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            while True:
                time.sleep(3600)
        case _:
            raise FaultInjected(f"injected fault {':'.join(parts)}")
