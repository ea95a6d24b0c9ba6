"""What a launch left running ends as a whole, also what is started while it is being ended."""

import os
import subprocess
from pathlib import Path

import pytest

from llmc.base.tmux import Tmux
from llmc.config.model import Config, Repo
from llmc.config.paths import Root
from llmc.records.store import Store
from llmc.repo.project import Project
from llmc.sessions import leftovers
from tests.support.waiting import wait_until


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = Root(tmp_path)
    store = Store(root)
    store.create()
    return Project(root, Config(repo=Repo(source=str(tmp_path))), store, Tmux("none"))


def test_one_that_starts_another_as_it_is_ended(project: Project) -> None:
    """Break: look once. What the trap starts was not there when it was looked, and would live on."""
    instance = os.urandom(6).hex()
    env = {"PATH": os.environ["PATH"], "LLMC_INSTANCE": instance, "CLAUDE_CODE_CHILD_SESSION": "1"}
    script = "trap 'setsid sleep 300 & exit' TERM; while :; do sleep 0.05; done"
    first = subprocess.Popen(["sh", "-c", script], env=env)
    wait_until(lambda: len(leftovers.of(instance)) == 2)  # it sleeps, so the trap is set
    leftovers.end_launch(project, "adam", instance)
    first.wait(10)
    assert leftovers.of(instance) == []
