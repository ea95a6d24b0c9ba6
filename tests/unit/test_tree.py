"""The shape of the source tree: a file is found by its name, and read in one go."""

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
