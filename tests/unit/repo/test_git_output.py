"""git's output is split on NUL: names and subjects may contain any other character, even newlines."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import llmc

SOURCE = Path(llmc.__file__).parent

#: git-lfs has no -z
ALLOWED = {"repo/lfs.py:_pointers"}


def offences(text: str) -> Iterator[str]:
    """The functions that split git's output at newlines."""
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef):
            continue
        splits = [node for node in ast.walk(function) if _splits_lines(node)]
        if not splits:
            continue
        from_git = {
            target.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and _asks_git(node.value)
            for names in node.targets
            for target in ast.walk(names)
            if isinstance(target, ast.Name)
        }
        for node in splits:
            if _is_of_git(node.func.value, from_git):  # type: ignore[attr-defined]
                yield function.name


def _asks_git(node: ast.expr) -> bool:
    calls = [call.func for call in ast.walk(node) if isinstance(call, ast.Call)]
    named = any(isinstance(call, ast.Name) and call.id in ("git", "out") for call in calls)
    return named or any(
        isinstance(call, ast.Attribute)
        and isinstance(call.value, ast.Name)
        and (call.value.id, call.attr) in (("git", "git"), ("git", "out"))
        for call in calls
    )


def _splits_lines(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    ends = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
    return node.func.attr == "splitlines" or (node.func.attr in ("split", "rsplit") and "\n" in ends)


def _is_of_git(node: ast.expr, from_git: set[str]) -> bool:
    return _asks_git(node) or any(
        isinstance(name, ast.Name) and name.id in from_git for name in ast.walk(node)
    )


def test_nothing_splits_what_git_prints_at_line_ends() -> None:
    """Break: `git.git(...).stdout.splitlines()` anywhere.
    U+2028 in one subject would end every `llmc trash` command.
    """
    found = {
        f"{path.relative_to(SOURCE)}:{name}"
        for path in sorted(SOURCE.rglob("*.py"))
        for name in offences(path.read_text())
    }
    assert found == ALLOWED


@pytest.mark.parametrize(
    "body",
    [
        "return git.git(repo, 'log').stdout.splitlines()",
        "rows = git.out(repo, 'log')\n    return rows.split('\\n')",
        "done = git(repo, 'log')\n    return [row for row in done.stdout.strip().splitlines()]",
    ],
)
def test_the_gate_can_fail(body: str) -> None:
    assert list(offences(f"def log(repo):\n    {body}\n")) == ["log"]
    assert list(offences("def log(repo):\n    return git.rows(git.git(repo, 'log').stdout)\n")) == []
