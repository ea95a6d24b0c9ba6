"""The commands that llmc names in what it says: the same thing has one form wherever it is said."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "llmc"
#: the command line that the supervisor itself runs, and what is said of it
OF_THE_SUPERVISOR = "supervisor/daemon_process.py"


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Every text in a file but for docstrings, which describe a command and send nobody to run it."""
    text = path.read_text()
    tree = ast.parse(text if "llmc up" in text else "")
    described = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in described:
            yield node.lineno, node.value


def test_what_starts_the_daemon_gives_the_terminal_back_wherever_it_is_named() -> None:
    """Break: `next: llmc up` in one place, `llmc up --detach` in another: the first keeps the person's terminal."""
    other = [
        f"{path.relative_to(SOURCE)}:{line}: {said}"
        for path in sorted(SOURCE.rglob("*.py"))
        if str(path.relative_to(SOURCE)) != OF_THE_SUPERVISOR
        for line, said in texts(path)
        if re.search(r"llmc up\b(?! (--auto )?--detach)", said)
    ]
    assert other == []
