"""What is written back was read as a whole: "" for "cannot be read" would empty a user's file."""

import ast
from collections.abc import Iterator
from pathlib import Path

import llmc

SOURCE = Path(llmc.__file__).parent

#: give nothing, or only the beginning, for what they cannot read
LOSSY = {"files.read_text", "inside.read", "inside.read_text", "json_record"}
WRITERS = {"edit_file", "inside.write", "replace_in", "rewrite", "write_atomic"}


def names(function: ast.AST, of_files: set[str]) -> Iterator[str]:
    """The calls in a function, `files.read_text` also where it was imported by its name."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).removeprefix("files.")
            yield "files.read_text" if name == "read_text" and name in of_files else name


def lossy(text: str) -> list[str]:
    """The functions that write, and read lossily themselves or through a function of their module."""
    tree = ast.parse(text)
    of_files = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "llmc.base.files"
        for alias in node.names
    }
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    called = {one.name: set(names(one, of_files)) for one in functions}
    readers = {name for name, calls in called.items() if calls & LOSSY}
    return [name for name, calls in called.items() if calls & WRITERS and calls & (LOSSY | readers)]


def test_what_is_written_back_is_read_as_a_whole() -> None:
    """A function that writes reads with `read_whole`, or is listed with the reason why nothing is lost.

    Seen to fail for: `read_text` in `serena._change_list`, which emptied a linked file.
    """
    found = {
        f"{path.relative_to(SOURCE)}:{name}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name not in ("files.py", "inside.py")
        for name in lossy(path.read_text())
    }
    assert found == {
        # llmc's note of its own copies: without it, each copy counts as changed by the agent, and is pinned first
        "repo/copied_files.py:copy_files",
    }
