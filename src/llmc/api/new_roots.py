"""Creating a root: required programs, its directory, trust in the client, and repo.validate."""

import os
from pathlib import Path

from msgspec import Struct

from llmc.agents.protocol import Trust
from llmc.api.settings import set_option
from llmc.base.errors import Refused
from llmc.config.load import load_config
from llmc.config.schema import to_toml
from llmc.config.toml_text import quoted
from llmc.doctor import programs
from llmc.doctor.programs import Lack as Lack
from llmc.doctor.rules.facts import Program
from llmc.records.task import TaskStatus
from llmc.repo import containment, setup
from llmc.repo.project import Project, agent_for
from llmc.repo.setup import find_check as find_check
from llmc.supervisor.remediation import main_directory
from llmc.tasks.source import source_of


class Made(Struct, frozen=True):
    """A root, and the programs found on this machine."""

    project: Project
    #: it existed before; only trust is added
    existed: bool
    found: list[Program]
    lacks: list[Lack]
    #: the root that commands in the source used before; None if there was no other
    replaced: Path | None = None


class Untrusted(Struct, frozen=True):
    """Directories that Claude Code does not trust yet, and its configuration file."""

    places: list[Path]
    file: Trust

    @property
    def config(self) -> Path:
        return self.file.file


def make(source: str | None, target: str | None, agent: str, *, reuse: bool) -> Made:
    """Create a root; with `reuse`, use the existing one of the repository."""
    found = programs.require_essential()
    where = setup.find_source(source, Path.cwd())
    existing = setup.existing_root(where, target)
    if existing is not None and not reuse and not target:
        raise Refused(
            f"cannot create a root: this repository already has one ({existing.path})",
            hint="Use that root, or create another one with `llmc init --target PATH`.",
        )
    before = setup.named_root(where)
    root = (existing if reuse else None) or setup.create_root(
        where, setup.choose_target(target, where), agent
    )
    project = setup.new_project(root)
    replaced = before if before != setup.named_root(where) else None
    return Made(project, root is existing, found, programs.lacks(project, found), replaced)


def untrusted(project: Project, *, asked: bool) -> Untrusted | None:
    """What the client does not trust yet; None if nothing is needed. Without `asked`, a trusted root is enough."""
    agent = agent_for(project)
    environment = {**os.environ, **project.config.defaults.env}
    # The workers' directories belong to the root; the supervisor's agent works in the source.
    places = dict.fromkeys((project.root.path, main_directory(project)[0]))
    missing = [place for place in places if agent.setup_problem(place, environment)]
    file = agent.trust(environment)
    if file is None or not missing or (project.root.path not in missing and not asked):
        return None
    return Untrusted(missing, file)


def trust(which: Untrusted) -> None:
    """Add the directories to the client's configuration. Only with the user's consent."""
    for place in which.places:
        which.file.add(place)


def set_check(project: Project, command: str) -> None:
    """Set repo.validate. Only with the user's consent, because it is run."""
    set_option(project.root, "repo.validate", quoted(command))


class Tools(Struct, frozen=True):
    """The tool chains of a repository, and the hosts that they download from."""

    presets: tuple[str, ...]
    hosts: list[str]


def settle_presets(project: Project) -> Tools:
    """Find the tool chains that contained agents and checks need, and name them in the configuration."""
    found = containment.found_presets(project)
    if found:
        set_option(project.root, "sandbox.presets", to_toml(found))
    return Tools(found, containment.hosts(found))


def settings(project: Project) -> dict[str, object]:
    """The current settings, including those just set."""
    config = load_config(project.root.config)
    return {
        "validate": config.repo.validate,
        "task_list_id": config.auto.task_list_id,
        "presets": config.sandbox.presets,
    }


def open_tasks(project: Project) -> int:
    """How many open tasks the list has; a root recreated at the same path has the same list."""
    tasks = source_of(project).listing().tasks.values()
    return sum(task.status is not TaskStatus.COMPLETED for task in tasks)
