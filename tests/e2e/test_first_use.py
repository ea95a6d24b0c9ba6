"""The first minutes: what `init` detects, proposes and sets, and that the next command works right away."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc.config.load import load_config
from tests.support.fleet import Fleet, Result


@pytest.fixture(scope="module")
def place() -> Iterator[Fleet]:
    fleet = Fleet("scripted")
    fleet.plant({"Makefile": "test:\n\ttrue\n"})
    yield fleet
    fleet.close()


@pytest.fixture
def fresh(place: Fleet) -> Fleet:
    """A source without a root."""
    shutil.rmtree(place.root, ignore_errors=True)
    subprocess.run(["git", "config", "--unset", "llmc.root"], cwd=place.source, env=place.env)
    return place


def path_with(fleet: Fleet, *programs: str) -> str:
    directory = fleet.dir / ("with-" + "-".join(programs))
    directory.mkdir(exist_ok=True)
    for name in ("sh", "env", *programs):
        if not (directory / name).exists():
            (directory / name).symlink_to(str(shutil.which(name)))
    return str(directory)


def init(fleet: Fleet, *args: str, code: int = 0, **env: str) -> Result:
    return fleet.llmc("init", "--target", str(fleet.root), *args, code=code, **env)


def made_nothing(fleet: Fleet) -> bool:
    asked = subprocess.run(["git", "config", "llmc.root"], cwd=fleet.source, env=fleet.env)
    return not fleet.root.exists() and asked.returncode == 1


@pytest.mark.req("2-001")
def test_init_names_every_essential_program_that_is_missing_before_it_makes_anything(fresh: Fleet) -> None:
    """Break: check for tmux only when a session starts, or stop at the first missing program."""
    alone = init(fresh, code=1, PATH=path_with(fresh, "git"))
    assert "tmux is not installed" in alone.err
    assert "apt-get install tmux" in alone.err
    assert made_nothing(fresh)
    both = init(fresh, "--json", code=1, PATH=path_with(fresh))
    for name in ("git", "tmux"):
        assert f"{name} is not installed" in both.json["error"]
        assert f"apt-get install {name}" in both.json["hint"]
    assert made_nothing(fresh)


@pytest.mark.req("2-001")
def test_init_goes_on_without_the_client_git_lfs_and_difft_and_says_how_to_get_them(fresh: Fleet) -> None:
    """Break: look for the client on PATH only at `up`, or leave git-lfs out where the source uses it."""
    shadow = fresh.dir / "shadow"
    shadow.mkdir()
    (shadow / "claude_agent_sdk.py").touch()  # the extra is not installed
    (fresh.source / ".gitattributes").write_text("*.bin filter=lfs\n")
    fresh.git("add", ".gitattributes")
    fresh.git("-c", "filter.lfs.required=false", "commit", "-q", "-m", "Large files")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "llmc", "init", "--target", str(fresh.root), "--no-trust"],
            cwd=fresh.source,
            env={
                **fresh.env,
                "LLMC_AGENT": "claude",
                "PATH": path_with(fresh, "git", "tmux"),
                "PYTHONPATH": str(shadow),
            },
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        said = " ".join(done.stderr.split())
        assert "warning: Claude Code is not installed or not on PATH. Install it" in said
        assert "warning: the source repository uses Git LFS, but git-lfs is not installed" in said
        assert "apt-get install git-lfs" in said
        assert "optional: difft is not installed" in said
        assert "difftastic" in said
    finally:
        fresh.git("reset", "-q", "--hard", "HEAD~1")
    unused = init(
        fresh, "--target", str(fresh.dir / "other"), "--json", PATH=path_with(fresh, "git", "tmux")
    ).json
    assert [(row["name"], row["optional"]) for row in unused["missing"]] == [
        ("git-lfs", True),
        ("difft", True),
    ]
    assert set(unused["programs"]) == {"git", "tmux"}
    assert all(unused["programs"].values())


def test_a_check_is_proposed_and_never_set_without_a_word(fresh: Fleet) -> None:
    """Break: set what was detected without asking."""
    done = init(fresh)
    assert "llmc config set repo.validate 'make test'" in done.err
    assert load_config(fresh.root / "config.toml").repo.validate == ""


@pytest.mark.parametrize(
    ("options", "answer", "validate"),
    [
        (["--validate", 'sh -c "a b"'], b"", 'sh -c "a b"'),
        ([], b"y\n", "make test"),
        ([], b"n\n", ""),
        (["--no-validate"], b"", ""),
    ],
)
def test_a_check_is_set_as_a_person_says(
    fresh: Fleet, options: list[str], answer: bytes, validate: str
) -> None:
    """Break: ask although --validate is given, or take no answer as a yes."""
    code, shown = at_terminal(fresh, answer, "init", "--target", str(fresh.root), *options)
    assert code == 0, shown
    assert (b"Run `make test`" in shown) is bool(answer)
    assert load_config(fresh.root / "config.toml").repo.validate == validate


def at_terminal(fleet: Fleet, answer: bytes, *args: str) -> tuple[int, bytes]:
    """A command on its own terminal, with the answer typed ahead."""
    master, slave = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "llmc", *args],
        cwd=fleet.source,
        env=fleet.env,
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    os.write(master, answer)
    shown = b""
    try:
        while data := os.read(master, 65536):
            shown += data
    except OSError:
        pass  # the end of a terminal is an error
    finally:
        os.close(master)
    return process.wait(60), shown


def test_contradicting_options_make_nothing(fresh: Fleet) -> None:
    assert "--no-validate" in init(fresh, "--validate", "x", "--no-validate", code=2).err
    assert made_nothing(fresh)


def test_a_root_is_made_where_the_option_of_all_commands_says(fresh: Fleet) -> None:
    """Break: ignore --root before init, or do not say where it belongs."""
    said = fresh.llmc("init", "--root", str(fresh.root), code=2).err
    assert "--root goes before the command" in said
    assert made_nothing(fresh)
    fresh.llmc("--root", str(fresh.root), "init", "--agent", "scripted", "--no-validate")
    assert fresh.has_root


def test_a_task_list_is_there_at_once(fresh: Fleet) -> None:
    """Break: no task list in a new config.toml."""
    init(fresh, "--no-validate")
    list_id = load_config(fresh.root / "config.toml").auto.task_list_id
    assert list_id.startswith("src-")
    fresh.llmc("tasks", "add", "Note something", cwd=fresh.root)
    (task,) = fresh.llmc("tasks", "list", "--json", cwd=fresh.root).json["tasks"]
    assert task["subject"] == "Note something"


def test_a_root_that_is_made_again_says_that_its_list_has_tasks(fresh: Fleet) -> None:
    """Break: let `up --auto` start with forgotten tasks."""
    where = {"LLMC_SCRIPTED_CONFIG_DIR": str(fresh.dir / "of-the-agent")}
    assert "open tasks" not in init(fresh, "--no-validate", **where).err
    fresh.llmc("tasks", "add", "Left over", cwd=fresh.root, **where)
    fresh.llmc("uninstall", "--yes", cwd=fresh.root, **where)
    assert "has 1 open task from an earlier root" in init(fresh, "--no-validate", **where).err


def test_the_client_can_be_run_by_hand_wherever_it_is(fresh: Fleet) -> None:
    """Break: look only on PATH; with llmc's extra the client is in a package."""
    client = fresh.dir / "client"
    client.write_text('#!/bin/sh\necho "$@ in $CLAUDE_CONFIG_DIR"\n')
    client.chmod(0o755)
    argv = ("claude", "auth", "login", "--", "--version")
    before = fresh.llmc(*argv, cwd=fresh.dir, LLMC_ROOT="", PATH=with_client(fresh, client))
    assert before.out == "auth login --version in \n"
    init(fresh, "--no-validate")
    fresh.configure(
        {"defaults.agent_command": str(client), "defaults.env": '{CLAUDE_CONFIG_DIR = "/its/own"}'}
    )
    assert fresh.llmc("claude", "auth", "status", LLMC_AGENT="").out == "auth status in /its/own\n"


def with_client(fleet: Fleet, client: Path) -> str:
    directory = fleet.dir / "claude-here"
    directory.mkdir(exist_ok=True)
    (directory / "claude").symlink_to(client)
    return f"{directory}:{fleet.env['PATH']}"
