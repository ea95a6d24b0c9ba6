"""The requirements in docs/requirements/, and the tests that name the lines they prove.

Also a pytest plugin. A mark with an unknown line stops every run; `--requirements FILE` keeps only the tests
that prove a line, and writes their results to the file.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "requirements"

_ID = re.compile(r"[0-9]-X?[0-9]{1,3}")
_CELLS = re.compile(r"(?<!\\)\|")
_FENCE = re.compile(r"^\s*(```|~~~)")


@dataclass(frozen=True)
class Requirement:
    """One line: its id, what llmc promises, and where that is written."""

    id: str
    promise: str
    place: str


@dataclass(frozen=True)
class Test:
    """One test, all its parameters together: the lines it proves, and its result."""

    __test__ = False

    name: str
    ids: tuple[str, ...]
    outcome: str


def read_requirements(folder: Path = FOLDER) -> dict[str, Requirement]:
    """Every line of every document, by id; ValueError for an unreadable table or a duplicate id."""
    found: dict[str, Requirement] = {}
    for path in sorted(folder.glob("*.md")):
        for line in read_lines(path.read_text(), path.name):
            if line.id in found:
                raise ValueError(f"{line.place}: {line.id} is at {found[line.id].place} already")
            found[line.id] = line
    return found


def read_lines(text: str, name: str) -> list[Requirement]:
    """The rows of the tables of one document."""
    found = []
    fenced = False
    for number, line in enumerate(text.splitlines(), start=1):
        fenced ^= bool(_FENCE.match(line))
        if fenced or not line.lstrip().startswith("|"):
            continue
        cells = [cell.strip() for cell in _CELLS.split(line.strip().removeprefix("|").removesuffix("|"))]
        if cells[0] == "id" or not cells[0].strip(":-"):
            continue
        if len(cells) != 2 or not _ID.fullmatch(cells[0]) or not cells[1]:
            raise ValueError(f"{name}:{number}: not a requirement: {line.strip()}")
        found.append(Requirement(cells[0], cells[1], f"{name}:{number}"))
    return found


def ids_of(item: pytest.Item) -> tuple[str, ...]:
    """The lines that a test claims to prove; `mark.req` takes one or several."""
    given = [line for mark in item.iter_markers("req") for line in mark.args]
    return tuple(sorted({line if isinstance(line, str) else repr(line) for line in given}))


def read_report(path: Path) -> list[Test]:
    return [Test(row["name"], tuple(row["ids"]), row["outcome"]) for row in json.loads(path.read_text())]


def verdict(tests: Iterable[Test]) -> str:
    """The combined result of a line's tests: one failure is enough, and what did not run proves nothing."""
    outcomes = {test.outcome for test in tests}
    for worst in ("failed", "passed", "collected", "skipped"):
        if worst in outcomes:
            return worst
    return "missing"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--requirements",
        metavar="FILE",
        help="run only the tests that prove a requirement; write their outcomes into FILE",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Under xdist every worker has the option, too, but all reports arrive at the controller.
    if config.getoption("--requirements") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(Path(config.getoption("--requirements"))))


def proofs(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests that prove a line; one for `make soak` only if nothing else does."""
    is_soak = {item: item.get_closest_marker("soak") is not None for item in items}
    proved = {line for item in items if not is_soak[item] for line in ids_of(item)}
    return [
        item for item in items if ids_of(item) and (not is_soak[item] or not proved.issuperset(ids_of(item)))
    ]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = read_requirements()
    for item in items:
        ids = ids_of(item)
        unknown = [line for line in ids if line not in known]
        if unknown:
            raise pytest.UsageError(f"{item.nodeid}: no line {', '.join(unknown)} in docs/requirements/")
        if ids:
            item.user_properties.append(("req", list(ids)))
    if config.getoption("--requirements"):
        wanted = proofs(items)
        config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
        items[:] = wanted


class _Recorder:
    """Keeps the result of each test until the end of the run."""

    _ORDER = ("collected", "skipped", "passed", "failed")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, dict[str, Any]] = {}

    def _note(self, nodeid: str, ids: list[str], outcome: str) -> None:
        name = nodeid.partition("[")[0]
        row = self.rows.setdefault(name, {"name": name, "ids": [], "outcome": outcome})
        row["ids"] = sorted({*row["ids"], *ids})
        row["outcome"] = max(row["outcome"], outcome, key=self._ORDER.index)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items if session.config.option.collectonly else ():
            self._note(item.nodeid, list(ids_of(item)), "collected")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        ids = dict(report.user_properties).get("req")
        if isinstance(ids, list) and (report.when == "call" or not report.passed):
            self._note(report.nodeid, ids, report.outcome)

    def pytest_sessionfinish(self) -> None:
        self.path.write_text(json.dumps(list(self.rows.values()), indent=1))
