"""The shape of the source tree: a file is found by its name, and read in one go."""

import ast
from collections import Counter
from pathlib import Path

import llmc

TREE = Path(llmc.__file__).parent
#: Names that mean the same in each folder: its pure rules, its decision, its structs, the parts of an agent.
SHARED = {"__init__", "__main__", "rules", "decide", "model", "kind", "client", "screen", "glance"}
MOST_LINES = 600


def test_a_name_is_one_file() -> None:
    """Break: name a file `access.py` in a second folder."""
    names = Counter(path.stem for path in TREE.rglob("*.py"))
    assert {name for name, count in names.items() if count > 1} == SHARED


def test_no_file_is_too_long_to_read() -> None:
    """Break: lower the limit."""
    lengths = {path.relative_to(TREE): path.read_text().count("\n") for path in TREE.rglob("*.py")}
    assert {str(path): length for path, length in lengths.items() if length > MOST_LINES} == {}


#: modules in the import closure of a module, imports within functions included (docs/decisions/0060)
CLOSURES = {"llmc.landing.accept": 135, "llmc.auto.attend": 152, "llmc.goals.runner": 178}


def test_what_must_be_read_to_understand_a_module() -> None:
    """Break: import doctor/looking.py in auto/landing.py, for one function of it."""
    graph = {name: _imports(path) for name, path in _modules().items()}
    assert {root: len(_closure(graph, root)) for root in CLOSURES} == CLOSURES


def _modules() -> dict[str, Path]:
    paths = (path for path in TREE.rglob("*.py") if path.stem != "__init__")
    return {".".join(path.relative_to(TREE.parent).with_suffix("").parts): path for path in paths}


def _imports(path: Path) -> set[str]:
    """The names that a module imports, wherever it does so; some of them are modules."""
    found = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom))
    return {
        name for node in found for name in (node.module, *(f"{node.module}.{a.name}" for a in node.names))
    }


def _closure(graph: dict[str, set[str]], root: str) -> set[str]:
    seen: set[str] = set()
    ahead = {root}
    while ahead:
        name = ahead.pop()
        seen.add(name)
        ahead |= {other for other in graph[name] if other in graph} - seen
    return seen
