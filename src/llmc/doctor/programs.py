"""The programs that llmc runs: which are installed, and in which version. For `init` and `doctor`."""

import re
import shutil
import sys

from msgspec import Struct

from llmc.base import proc
from llmc.base.errors import LlmcError
from llmc.base.proc import ToolMissing
from llmc.doctor.check import Finding
from llmc.doctor.rules import facts as seen
from llmc.repo import lfs
from llmc.repo.project import Project, agent_for

#: the oldest versions that llmc works with; landing needs `git merge-tree --write-tree`
MINIMUM = {"git": (2, 38), "tmux": (3, 3), "python": (3, 11)}

#: llmc does not work without these
ESSENTIAL = (("git", "--version"), ("tmux", "-V"))

DIFFT = "difft is not installed, so `llmc review` shows plain diffs"
GET_DIFFT = "For syntax-aware diffs, install difftastic (https://difftastic.wilfred.me.uk)."


class Lack(Struct, frozen=True):
    """A program that is missing or too old, and how to get it."""

    name: str
    problem: str
    fix: str
    #: not needed for this repository
    optional: bool = False


def essential() -> list[seen.Program]:
    return [look_at(name, [name, flag]) for name, flag in ESSENTIAL]


def look_at(name: str, argv: list[str]) -> seen.Program:
    try:
        said = proc.run(argv, timeout_s=20).stdout.strip()
    except LlmcError as error:
        return seen.Program(name, problem=error.message, fix=error.hint or f"install {name}")
    return seen.Program(name, said, MINIMUM[name])


def client(project: Project) -> seen.Program:
    try:
        agent = agent_for(project)
        return seen.Program(agent.name, agent.version(), agent.minimum)
    except LlmcError as error:
        return seen.Program("the agent", problem=error.message, fix=error.hint or "run `llmc config edit`")


def here(project: Project, *, agent: bool) -> tuple[seen.Program, ...]:
    """The programs of a root; with `agent`, its configured agent too."""
    python = seen.Program("python", sys.version.split()[0], MINIMUM["python"])
    return (*essential(), python, *([client(project)] if agent else []))


def parse_version(text: str) -> tuple[int, ...]:
    """The first version number in a program's output; empty if there is none."""
    match = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(map(int, match[0].split("."))) if match else ()


def of_program(program: seen.Program) -> list[Finding]:
    """Report a program that is missing or too old."""
    if program.problem:
        return [Finding(program.problem, program.fix or f"install {program.name}", subject=program.name)]
    version = parse_version(program.version)
    if not version or version >= program.minimum:
        return []
    needed = ".".join(map(str, program.minimum))
    text = f"{program.name} is too old: found {program.version}, need {needed} or later"
    return [Finding(text, program.fix or f"install {program.name} {needed} or later", subject=program.name)]


def require_essential() -> list[seen.Program]:
    """The essential programs with versions; raises an error that names all missing ones."""
    found = essential()
    missing = [program for program in found if program.problem]
    if missing:
        raise ToolMissing(
            "; ".join(program.problem for program in missing),
            hint=" ".join(program.fix for program in missing),
        )
    return found


def lacks(project: Project, found: list[seen.Program]) -> list[Lack]:
    """Programs that a new root will miss, most important first. llmc starts without them.

    Only checks that the client exists: `doctor` and the canary start it, which takes a second.
    """
    old = [
        Lack(program.name, finding.text, finding.fix) for program in found for finding in of_program(program)
    ]
    return [*old, *_client_lack(project), *_lfs_lack(project), *_difft_lack()]


def _client_lack(project: Project) -> list[Lack]:
    try:
        agent_for(project).program()
    except LlmcError as error:
        return [Lack(project.config.defaults.agent, error.message, error.hint)]
    return []


def _lfs_lack(project: Project) -> list[Lack]:
    if lfs.is_installed():
        return []
    if lfs.is_used(project.root.path, project.base):
        return [Lack("git-lfs", lfs.MISSING, f"{lfs.GET_IT}.")]
    return [Lack("git-lfs", "git-lfs is not installed", "This repository does not need it.", optional=True)]


def _difft_lack() -> list[Lack]:
    return [] if shutil.which("difft") else [Lack("difft", DIFFT, GET_DIFFT, optional=True)]
