"""What the fast commands import. They run thousands of times, and pay for every module each time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from llmc.base.names import SessionName, WorkerName
from llmc.config.paths import Root
from llmc.records.store import Store
from llmc.records.worker import WorkerRecord

#: modules that `llmc status --json` imports today, with some room; Python itself imports about 30 of them
MOST = 96
#: our modules that `llmc accept` imports before it does anything, with some room
MOST_OF_ACCEPT = 100

HEAVY = {
    *("click", "msgspec", "rich", "asyncio", "jinja2", "tomlkit", "psutil", "tomllib"),
    *("pathlib", "dataclasses", "typing_extensions", "logging", "inspect", "difflib", "tempfile", "socket"),
    *(
        "llmc.repo",
        "llmc.landing",
        "llmc.sessions",
        "llmc.agents",
        "llmc.daemon",
        "llmc.workers",
        "llmc.records.store",
    ),
    *("llmc.cli.app", "llmc.config.model", "llmc.config.paths", "llmc.base.errors"),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    store = Store(Root(tmp_path))
    store.create()
    (tmp_path / "config.toml").write_text('[repo]\nsource = "/none"\n')
    with store.transaction() as tx:
        tx.put(
            WorkerRecord(
                name=WorkerName("adam"),
                worktree_path=str(tmp_path),
                branch="llmc/adam",
                session_id=SessionName("llmc-adam"),
                created_at_unix=1.0,
            )
        )
        tx.emit("worker_added", worker="adam")
    return tmp_path


def imported(root: Path, *args: str) -> tuple[str, set[str]]:
    """What a command line printed, and every module it imported."""
    return loaded("-m", "llmc", "--root", str(root), *args)


def loaded(*argv: str) -> tuple[str, set[str]]:
    """What a Python process printed, and every module it imported."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *argv], capture_output=True, text=True, timeout=60
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert done.returncode == 0, done.stderr
    return done.stdout, {line.rpartition("|")[2].strip() for line in lines[1:]}


def below(modules: set[str], names: set[str]) -> set[str]:
    """Modules that have one of the names, or are inside one."""
    return {module for module in modules if any(f"{module}.".startswith(f"{name}.") for name in names)}


@pytest.mark.parametrize(
    "args",
    [["status", "--json"], ["wait", "adam", "--status", "offline"], ["events", "--json"]],
    ids=["status", "wait", "events"],
)
def test_the_hot_commands_load_little(root: Path, args: list[str]) -> None:
    """Break: import click, msgspec or llmc.base.errors at the top of cli/fast.py."""
    out, modules = imported(root, *args)
    assert "adam" in out
    assert "llmc.cli.fast" in modules
    assert below(modules, HEAVY) == set()
    assert len(modules) <= MOST, sorted(modules)


def test_a_running_agent_is_asked_with_little() -> None:
    """Break: use the table of agents in agents/glance.py, or give the status file a model."""
    hot = (
        "import llmc.cli.fast, llmc.api.seeing, llmc.agents.glance as one; one.glance('scripted', '/none', 1)"
    )
    _, modules = loaded("-c", hot)
    assert "llmc.agents.claude.glance" in modules
    assert below(modules, HEAVY - {"llmc.agents"}) == set()
    assert len(below(modules, {"llmc.agents"})) <= 7


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_load_next_to_nothing(option: str) -> None:
    """Break: use click for them, or import cli/fast.py at the top of cli/commands.py."""
    out, modules = loaded("-m", "llmc", option)
    assert "llmc" in out
    assert below(modules, HEAVY | {"subprocess", "shutil", "textwrap"}) == set()
    assert below(modules, {"llmc"}) <= {
        *("llmc", "llmc.base", "llmc.base.text", "llmc.base.text"),
        *("llmc.cli", "llmc.cli.commands", "llmc.cli.output"),
    }


def test_the_status_for_people_loads_no_click_and_no_goals(root: Path) -> None:
    """Break: import goals/goals.py in api/status_view.py, or leave `status` to click."""
    out, modules = imported(root, "status")
    assert "adam" in out
    unwanted = {"click", "rich", "shutil", "ctypes", "sqlite3", "llmc.daemon", "llmc.landing", "llmc.workers"}
    assert below(modules, unwanted) == set()
    assert below(modules, {"llmc.goals"}) <= {"llmc.goals", "llmc.goals.ticks"}


def test_an_accept_loads_only_what_lands() -> None:
    """Break: import click in cli/accept_work.py, daemon/chores.py in api/acceptance.py,
    or the typist in landing/rebase.py.
    """
    _, modules = loaded("-c", "import llmc.cli.accept_work, llmc.landing.accept")
    unwanted = {
        "click",
        "llmc.goals",
        "llmc.daemon",
        "llmc.auto",
        "llmc.tasks",
        "llmc.sessions.typist",
        "llmc.workers",
    }
    stdlib = {"shutil", "ctypes", "logging", "ssl", "http", "email", "hashlib", "difflib", "tempfile"}
    assert below(modules, unwanted | stdlib) == set()
    assert len(below(modules, {"llmc"})) <= MOST_OF_ACCEPT, sorted(modules)


def test_an_accept_looks_at_the_source_before_it_loads_the_rest() -> None:
    """Break: import landing/accept.py at the top of api/acceptance.py."""
    _, modules = loaded("-c", "import llmc.cli.accept_work")
    later = {"accept", "merging", "rebase", "review", "validation", "ways"}
    assert below(modules, {f"llmc.landing.{name}" for name in later}) == set()


@pytest.mark.req("1-097")
def test_the_status_is_the_documented_object(root: Path) -> None:
    out, _ = imported(root, "status", "--json")
    view = json.loads(out)
    assert view["root"] == str(root)
    assert view["daemon"] == {"running": False, "pid": None, "auto": False, "instance_id": None}
    (worker,) = view["workers"]
    assert set(worker) == {
        *("name", "status", "reason", "since_unix", "auto", "held", "attached", "task_id", "prompt"),
        "task_subject",
        *("prompt_id", "delivery", "accept_step", "conflicted_files", "resolution_attempts", "commit_sha"),
        *("self_review", "reviewed", "session", "last_activity_unix", "error_reason", "cause"),
        "refused_hosts",
    }


def test_each_command_loads_only_its_own_module(root: Path) -> None:
    """Break: import the command modules at the top of cli/app.py."""
    _, modules = imported(root, "config", "get", "defaults.model")
    commands = {m for m in modules if m.startswith("llmc.cli.")}
    assert commands <= {
        "llmc.cli.app",
        "llmc.cli.commands",
        "llmc.cli.config",
        "llmc.cli.fast",
        "llmc.cli.arguments",
        "llmc.cli.output",
    }


def test_a_screen_of_a_fleet_does_not_load_the_driver(root: Path) -> None:
    """Break: import psycopg at the top of a module; the first frame of every screen would wait for it."""
    (root / "config.toml").write_text(
        '[repo]\nsource = "/none"\n[fleet]\ndatabase = "postgresql://llmc@/x?host=/nowhere"\n'
    )
    script = (
        "import sys; from llmc.api.subscription import Subscription; from llmc.api.other_nodes import others; "
        "from llmc.repo.project import open_project; "
        "print(others(open_project(sys.argv[1]), 1.0, ())); "
        "sys.stderr.write(' '.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(root)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "None\n"
    assert "psycopg" not in done.stderr.split()
