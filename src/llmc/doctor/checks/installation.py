"""Checks of programs, the launcher, the client, the configuration and state.json."""

import os
import shlex
from collections.abc import Iterator

from llmc.base.errors import LlmcError, Refused
from llmc.doctor import canary, programs
from llmc.doctor.check import Check, Finding, Sight, fixable
from llmc.doctor.rules.facts import OFF, Facts, StateFile
from llmc.notifications import notify
from llmc.repo.project import Project, agent_for
from llmc.repo.setup import write_launcher
from llmc.sandbox import probe
from llmc.sandbox.rules import Problem

REBUILD = "run `llmc doctor --rebuild` to rebuild it from worktrees and sessions"


def _launcher(at: Sight) -> Iterator[str]:
    """Problems with the launcher: its interpreter is gone if the virtual environment was moved or removed."""
    path = at.project.root.bin / "llmc"
    try:
        words = shlex.split(path.read_text().splitlines()[-1])
        python = words[words.index("exec") + 1]
    except FileNotFoundError:
        yield f"{path}, the agents' `llmc` command, is missing"
    except (OSError, ValueError, IndexError):
        yield f"cannot read {path}, the agents' `llmc` command"
    else:
        if not os.access(python, os.X_OK) or not os.access(path, os.X_OK):
            yield f"cannot run {path}, the agents' `llmc` command: the script or {python} is missing or not executable"


def _write_launcher(project: Project, _: str) -> str:
    write_launcher(project.root)
    return "rewritten"


def _trust(at: Sight) -> list[str]:
    try:
        environment = {**os.environ, **at.project.config.defaults.env}
        problem = agent_for(at.project).setup_problem(at.project.root.path, environment)
    except LlmcError:
        return []  # reported by the check of programs
    return [problem] if problem else []


def _sandbox(at: Sight) -> list[Problem]:
    """Run a contained program, if any agent or check is to be contained."""
    found = probe.problem() if at.facts.contained != OFF else None
    return [found] if found else []


def _canary(facts: Facts, _: tuple[()]) -> Iterator[Finding]:
    if facts.canary is not None and not facts.canary.passed:
        fix = facts.canary.fix or f"run `{facts.up_auto}` to run the canary again"
        yield Finding(f"the last canary failed: {facts.canary.summary}", fix)


def _canary_left(_: Facts, seen: tuple[str, ...]) -> Iterator[Finding]:
    for path in seen:
        text = f"a canary was killed, and its scratch session is still running: {path}"
        yield fixable(text, subject=path)


def _end_canary(project: Project, _: str) -> str:
    canary.repair_leftovers(project.root)
    return "stopped"


def _not_added(facts: Facts, _: tuple[()]) -> Iterator[Finding]:
    known = {worker.record.name for worker in facts.workers}
    for name in facts.configured:
        if name not in known:
            yield Finding("is in config.toml but was never added", f"run `llmc add {name}`", name)


def _state(facts: Facts, _: tuple[()]) -> Iterator[Finding]:
    state = facts.state
    if state.kind is StateFile.VALID:
        for text in state.misfiled:
            yield Finding(f"state.json: {text}", REBUILD, subject=text)
    elif state.kind is StateFile.NEWER:
        yield Finding(state.problem, "use the version of llmc that wrote it")
    else:
        copy = "copy state.json.bak over it, or " if state.backup_good else ""
        yield Finding(state.problem, copy + REBUILD)


def _elsewhere(at: Sight) -> list[Refused]:
    refused = at.project.store.elsewhere()
    return [refused] if refused else []


# fmt: off
CHECKS = (
    Check("program", "programs", "a program is missing or too old",
        judge=lambda facts, _: (found for one in facts.programs for found in programs.of_program(one))),
    Check("launcher", "programs", "the `llmc` that agents run is missing or does not work", look=_launcher,
        judge=lambda _, seen: map(fixable, seen), fix=_write_launcher),
    Check("trust", "programs", "Claude Code would stop at its trust dialog", look=_trust,
        judge=lambda _, seen: (Finding(text, "run `llmc init --trust` in the source repository") for text in seen),
        needs=("config",)),
    Check("sandbox", "containment", "agents or checks must be contained, but this machine cannot contain them", look=_sandbox,
        judge=lambda _, seen: (Finding(one.text, one.fix) for one in seen), needs=("config",)),
    Check("canary", "programs", "the last canary failed", judge=_canary),
    Check("canary_left", "programs", "a canary was killed, and its session is still running",
        look=lambda at: map(str, canary.leftovers(at.project.root)), judge=_canary_left, fix=_end_canary,
        needs=("tmux",)),
    Check("config", "configuration", "config.toml is invalid",
        judge=lambda facts, _: (Finding(t, "run `llmc config edit` to fix it", subject=t) for t in facts.config_problems)),
    Check("not_added", "configuration", "a worker in config.toml was never added", judge=_not_added,
        needs=("state",)),
    Check("notify", "configuration", "a notification channel does not work",
        look=lambda at: notify.problems(at.project),
        judge=lambda _, seen: (Finding(t, "fix the channel, then run `llmc notify test`", subject=t) for t in seen)),
    Check("state", "state", "state.json is missing or damaged, or was written by a newer llmc", judge=_state),
    Check("elsewhere", "state", "the root was moved or copied; nothing changes it until it is back", look=_elsewhere,
        judge=lambda _, seen: (Finding(one.message, one.hint) for one in seen), needs=("state",)),
)
# fmt: on
