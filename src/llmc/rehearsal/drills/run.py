"""Runs drills, each in its own process and directory, several at a time."""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from llmc.base import proc
from llmc.base.clock import monotonic
from llmc.base.errors import LlmcError
from llmc.rehearsal.drills.losses import losses
from llmc.rehearsal.drills.model import Drill, DrillFailed, Kind, Report, Terms
from llmc.rehearsal.drills.scratch import Scratch, stop

#: short: it becomes part of socket and session names
PREFIX = "llmc-drill-"
#: the longest drill takes two minutes on a slow machine
LIMIT_S = 600.0
#: stopping a supervisor takes up to half a minute if a daemon hangs
END_S = 90.0
POLL_S = 0.05
SMALL_DISK = "48m"
_SAID = "report"
#: exits of a supervisor that needs the user: failure spiral, manual intervention requested, manual fix required
_HUMAN_EXITS = (10, 11, 12)


class _Running(Struct, frozen=True):
    """A drill in its own process."""

    drill: Drill
    child: proc.Child
    directory: Path
    deadline: float

    def report(self) -> Report:
        """The drill's report; the directory is kept if something went wrong."""
        report = _read(self.drill, (self.directory / _SAID).read_text(errors="replace"))
        if report.outcome == "passed":
            shutil.rmtree(self.directory, ignore_errors=True)
            return report
        return replace(report, directory=str(self.directory))


def run_all(
    drills: Iterable[Drill], jobs: int, began: Callable[[Drill], None], terms: Terms
) -> Iterator[Report]:
    """Run drills and yield reports as they arrive; stopping early, e.g. with Ctrl-C, leaves nothing running."""
    waiting = list(drills)
    running: list[_Running] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                drill = waiting.pop(0)
                began(drill)
                started = _start(drill, terms)
                if isinstance(started, Report):
                    yield started
                else:
                    running.append(started)
            for one in [one for one in running if _has_ended(one)]:
                running.remove(one)
                yield one.report()
            time.sleep(POLL_S)
    finally:
        for one in running:
            stop(one.child, END_S)
            shutil.rmtree(one.directory, ignore_errors=True)


def _start(drill: Drill, terms: Terms) -> _Running | Report:
    directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    wrapper, problem = _wrapper(drill.needs, directory)
    if problem:
        shutil.rmtree(directory, ignore_errors=True)
        return Report(drill, skipped=problem)
    argv = [*wrapper, sys.executable, "-P", "-m", "llmc.rehearsal.drills", drill.name, str(directory)]
    argv.append(msgspec.json.encode(terms).decode())
    child = proc.spawn_detached(argv, directory / _SAID, dict(os.environ))
    return _Running(drill, child, directory, monotonic() + LIMIT_S + terms.lasts_s)


def _has_ended(one: _Running) -> bool:
    if one.child.poll() is None and monotonic() > one.deadline:
        stop(one.child, END_S)
    return one.child.poll() is not None


def _read(drill: Drill, text: str) -> Report:
    try:
        row: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return Report(drill, problems=[f"the drill crashed: {text.strip()[-2000:]}"])
    return Report(drill, **row)


def _wrapper(needs: str, directory: Path) -> tuple[list[str], str]:
    """The command prefix for a drill, or why it cannot run here."""
    match needs:
        case "small disk":
            namespace, drop = ["unshare", "--mount"], ""
            if (
                os.geteuid() != 0
            ):  # as the same user: for another, tmux would use that user's directory in /tmp
                namespace += ["--map-current-user", "--keep-caps"]
                drop = "setpriv --ambient-caps=-all --inh-caps=-all -- "
            script = f'mount -t tmpfs -o size={SMALL_DISK} none "$0" && exec {drop}"$@"'
            argv = [*namespace, "/bin/sh", "-c", script, str(directory)]
            return _tried(argv, "cannot mount a tmpfs for this drill")
        case "no privileges" if os.geteuid() == 0:
            dropped = "-dac_override,-dac_read_search"
            argv = ["setpriv", f"--bounding-set={dropped}", f"--inh-caps={dropped}", "--no-new-privs"]
            return _tried([*argv, "--"], "cannot drop root privileges")
    return [], ""


def _tried(argv: list[str], problem: str) -> tuple[list[str], str]:
    try:
        done = proc.run([*argv, "true"], timeout_s=20, check=False)
    except LlmcError as error:
        return [], f"{problem}: {error.message}"
    return (argv, "") if done.ok else ([], f"{problem}: {done.stderr.strip()[:200]}")


def run_here(drill: Drill, directory: Path, terms: Terms) -> Report:
    """Run one drill in this process."""
    scratch = Scratch(directory, terms)
    try:
        problems = _problems(drill, scratch)
    finally:
        scratch.end()
    report = Report(
        drill,
        detected_s=_since(scratch, scratch.detected_unix),
        recovered_s=_since(scratch, scratch.recovered_unix),
        lost=losses(scratch) if (scratch.root / "config.toml").exists() else [],
        problems=problems,
        notes=scratch.notes,
    )
    return replace(report, problems=[*problems, *_late(report)])


def _problems(drill: Drill, scratch: Scratch) -> list[str]:
    """What went wrong."""
    try:
        drill.run(scratch)
    except DrillFailed as error:
        return [str(error)]
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    return _kind_problems(drill, scratch)


def _since(scratch: Scratch, then: float) -> float | None:
    return round(then - scratch.fault_unix, 2) if then and scratch.fault_unix else None


def _late(report: Report) -> list[str]:
    limit_s = report.drill.bound_s
    if report.problems or limit_s is None:
        return []
    if report.detected_s is None:
        return ["the fault was not detected"]
    is_late = report.detected_s > limit_s
    return [f"detected after {report.detected_s:g} s; the limit is {limit_s:g} s"] if is_late else []


def _kind_problems(drill: Drill, scratch: Scratch) -> list[str]:
    """Check that the expected party recovered from the failure."""
    remediations = scratch.events("overseer_remediation", scratch.fault_unix)
    remediated = [row["outcome"] for row in remediations if row.get("outcome")]
    if drill.kind is Kind.HUMAN:
        code = scratch.ended(5)
        return (
            []
            if code in _HUMAN_EXITS
            else [f"expected the supervisor to exit with code 10, 11 or 12, not {code}"]
        )
    problems = []
    if not scratch.is_supervised():
        problems.append(f"the supervisor exited:\n{scratch.said()[-2000:]}")
    if drill.kind is Kind.ANY:
        return problems
    if drill.kind is Kind.AUTO and len(remediations) > len(remediated):
        problems.append("expected no remediation, but one ran")
    if drill.kind is not Kind.AUTO and remediated != ["completed"]:
        problems.append(f"expected one completed remediation, found {', '.join(remediated) or 'none'}")
    return problems
