"""Front ends see only api: not by imports (.importlinter), and not through the results of operations."""

import ast
from collections.abc import Iterator
from pathlib import Path

import llmc
from llmc.cli.commands import COMMANDS, PLACES

CLI = Path(llmc.__file__).parent / "cli"

#: what an open root has for operations: locks, the state, tmux, the daemon's wake-up
NOT_FOR_FRONT_ENDS = {
    *("accept_lock", "try_accept_lock", "worker_lock", "worker_unlocked", "repo_lock"),
    *("store", "tmux", "pane", "wake", "transaction"),
}


def uses(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr in NOT_FOR_FRONT_ENDS:
            yield node.lineno, node.attr


def test_no_command_takes_a_lock_or_reads_the_state_itself() -> None:
    """A web page would have to do the same. Break: `with project.worker_lock(worker):` in any command."""
    found = [
        f"{path.name}:{line}: {name}"
        for path in sorted(CLI.glob("*.py"))
        for line, name in uses(path.read_text())
    ]
    assert found == []
    assert list(uses("with project.worker_lock(name): project.store.read()"))  # the check itself


def test_every_command_has_one_place() -> None:
    """Break: a command in COMMANDS that no module of PLACES has, or the reverse."""
    assert set(PLACES) == set(COMMANDS)
