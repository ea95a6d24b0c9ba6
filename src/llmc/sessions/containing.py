"""Contains a worker's agent: what it sees in addition to every contained program, and the home of its client.

The agent can write to its worktree, repository, inbox and home. Otherwise it sees only what it needs to run.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from llmc.agents.protocol import Agent, Home
from llmc.base.files import private_dir
from llmc.records.worker import WorkerRecord
from llmc.repo import containment
from llmc.repo.project import Project
from llmc.sandbox import probe
from llmc.sandbox.network import Network


def make_home(project: Project, record: WorkerRecord, agent: Agent, environment: Mapping[str, str]) -> Home:
    """The home of a contained agent; its client trusts the worktree, and the root as the repository."""
    place = private_dir(project.root.homes) / record.name
    return agent.home(environment, place, (Path(record.worktree_path), project.root.path))


def agent_network(
    project: Project, record: WorkerRecord, agent: Agent, environment: Mapping[str, str]
) -> Network:
    """The agent's network: the hosts of its model, and those that every contained program may connect to."""
    return containment.network(
        project,
        str(project.root.homes / record.name),
        endpoints=agent.endpoints(environment),
        wake=str(project.root.wake_socket()),
        worker=record.name,
    )


def sandbox(
    project: Project,
    record: WorkerRecord,
    home: Home,
    settings: Path,
    argv: Sequence[str],
    env: Mapping[str, str],
    network: Network,
) -> dict[str, object]:
    """The part of the launch spec that contains the agent. The agent's repository must exist."""
    root = project.root
    run = private_dir(root.wake_socket().parent)
    view = containment.view(
        project,
        Path(record.worktree_path),
        env,
        program=argv[0],
        read=[str(run), str(root.bin), str(settings)],
        write=[str(private_dir(root.inbox / record.name))],
        mounts=home.mounts,
    )
    return probe.sandbox(view, pid_file(project, record.name), network)


def pid_file(project: Project, name: str) -> str:
    """The file where the holder records the agent's pid, hidden from the agent (agents/claude/glance.py)."""
    return f"{project.root.homes / name}.pid"
