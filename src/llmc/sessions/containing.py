"""Contain a worker's agent: what it sees of this machine, and the home of its client.

It writes its worktree, its repository, its inbox and its home; of everything else it sees only what it needs to run.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from llmc.agents.protocol import Agent, Home
from llmc.base.files import private_dir
from llmc.records.worker import WorkerRecord
from llmc.repo import own_repos
from llmc.repo.project import Project
from llmc.sandbox import probe, programs, rules
from llmc.sandbox.network import Network
from llmc.sandbox.reaching import UPSTREAM_VARIABLES
from llmc.sandbox.rules import Mount, View


def make_home(project: Project, record: WorkerRecord, agent: Agent, environment: Mapping[str, str]) -> Home:
    """The home of a contained agent; its client trusts the worktree, whatever it takes for the repository of it."""
    place = private_dir(project.root.homes) / record.name
    return agent.home(environment, place, (Path(record.worktree_path), project.root.path))


def network(project: Project, record: WorkerRecord, agent: Agent, environment: Mapping[str, str]) -> Network:
    """What the agent may connect to: its model, and what is listed."""
    user = {**os.environ, **project.config.defaults.env}
    return Network(
        hosts=hosts(project),
        endpoints=agent.endpoints(environment),
        files=str(project.root.homes / record.name),
        upstream={name: user[name] for name in UPSTREAM_VARIABLES if name in user},
        wake=str(project.root.wake_socket()),
        worker=record.name,
    )


def hosts(project: Project, more: Sequence[str] = ()) -> tuple[str, ...]:
    """What contained agents may connect to besides their model: what the user lists, and `more`."""
    return (*project.config.sandbox.hosts, *more)


def sandbox(
    project: Project,
    record: WorkerRecord,
    home: Home,
    settings: Path,
    argv: Sequence[str],
    env: Mapping[str, str],
    network: Network,
) -> dict[str, object]:
    """The part of the launch spec that contains the agent. Its repository exists."""
    root, worktree = project.root, record.worktree_path
    user_home = env.get("HOME", "")
    hidden = [place for place in (user_home, str(root.path), project.source) if os.path.isabs(place)]
    own = own_repos.path_of(root.path, record.name)
    writable, fixed = own_repos.for_agents(own, root.path)
    run = private_dir(root.wake_socket().parent)
    read = [*programs.places(env.get("PATH", ""), argv[0], hidden), *fixed, f"{worktree}/.git"]
    read += [str(run), str(root.bin), str(settings)]
    write = [worktree, *writable, str(private_dir(root.inbox / record.name))]
    view = View(
        (
            *probe.system_mounts(),
            *map(Mount, read),
            *(Mount(path, True) for path in write),
            *home.mounts,
        ),
        empty=(*rules.SCRATCH, *([user_home] if os.path.isabs(user_home) and user_home != "/" else [])),
        links=probe.system_links(),
    )
    return probe.sandbox(view, pid_file(project, record.name), network)


def pid_file(project: Project, name: str) -> str:
    """Where the holder records the agent's pid: beside its home, which the agent cannot see (agents/claude/glance.py)."""
    return f"{project.root.homes / name}.pid"
