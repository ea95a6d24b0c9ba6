"""The requirements can be parsed, and each mark names an existing line."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.requirements import FOLDER, Test, read_lines, read_requirements, verdict

REPOSITORY = Path(__file__).resolve().parents[2]
TABLE = "| id | promise |\n| --- | --- |\n"

_MARK = re.compile(r"mark\.req\(([^)]*)\)")
_WORD = re.compile(r'"([^"]*)"')


def marked() -> dict[str, str]:
    """Every line that a mark names, and a file that does; read as text, so that nothing is imported."""
    found = {}
    for path in sorted((REPOSITORY / "tests").rglob("test_*.py")):
        if path != Path(__file__).resolve():
            for arguments in _MARK.findall(path.read_text()):
                found.update(dict.fromkeys(_WORD.findall(arguments), path.name))
    return found


def test_every_mark_names_a_line() -> None:
    """Break: make a typo in a mark; it would prove nothing."""
    known = read_requirements()
    named = marked()
    assert named, "the marks were not found"
    assert {line: file for line, file in named.items() if line not in known} == {}


def test_the_documents_read() -> None:
    """Break: use an id twice, or write a row without a promise."""
    lines = read_requirements(FOLDER)
    assert len(lines) > 100
    assert all(line.promise for line in lines.values())


def test_rows_are_read_wherever_they_stand() -> None:
    """Break: split at an escaped bar, or read a table inside a fence."""
    text = f"# Title\n{TABLE}| 1-001 | a `x \\| y` b |\n\ntext\n```\n| no | row |\n```\n{TABLE}|2-1|c|\n"
    assert [(line.id, line.promise, line.place) for line in read_lines(text, "a.md")] == [
        ("1-001", "a `x \\| y` b", "a.md:4"),
        ("2-1", "c", "a.md:12"),
    ]
    assert read_lines("", "a.md") == []
    assert read_lines("| :-- | --: |", "a.md") == []


@pytest.mark.parametrize("row", ["| 1-0 01 | x |", "| 1-001 | |", "| 1-001 |", "| 1-001 | x | y |", "| x"])
def test_a_row_that_is_none_is_named(row: str) -> None:
    with pytest.raises(ValueError, match=r"a\.md:3"):
        read_lines(TABLE + row, "a.md")


def test_an_id_is_used_once(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(f"{TABLE}| 1-001 | x |\n")
    (tmp_path / "b.md").write_text(f"{TABLE}| 1-001 | y |\n")
    with pytest.raises(ValueError, match=r"b\.md:3: 1-001 is at a\.md:3"):
        read_requirements(tmp_path)


@pytest.mark.parametrize(
    ("outcomes", "result"),
    [
        ([], "missing"),
        (["passed", "failed", "skipped"], "failed"),
        (["skipped", "passed"], "passed"),
        (["skipped"], "skipped"),
    ],
)
def test_a_line_stands_with_its_tests(outcomes: list[str], result: str) -> None:
    """Break: let one test that passes outweigh one that fails."""
    assert verdict(Test("t", ("1-001",), outcome) for outcome in outcomes) == result


def run_pytest(folder: Path, text: str, *args: str) -> "subprocess.CompletedProcess[str]":
    """pytest with the plugin, on our own test file."""
    (folder / "test_it.py").write_text(f"import pytest\n{text}")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = req\n")
    plugin = ["-p", "tests.support.requirements", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("more", [[], ["-n", "1"]], ids=["alone", "xdist"])
def test_outcomes_are_recorded_for_each_test(tmp_path: Path, more: list[str]) -> None:
    """Break: check only the call; a failing fixture would not count. Or lose the ids under xdist."""
    text = """
@pytest.mark.req("1-002", "1-001")
@pytest.mark.parametrize("x", [1, 2])
def test_a(x): assert x == 1
@pytest.mark.req("1-001")
@pytest.mark.req("1-003")
def test_b(): pass
@pytest.fixture
def bad(): yield; raise RuntimeError
@pytest.mark.req("1-004")
def test_c(bad): pass
@pytest.mark.req("1-005")
def test_d(): pytest.skip("no")
def test_unmarked(): raise RuntimeError("this must not run")
"""
    report = tmp_path / "report.json"
    done = run_pytest(tmp_path, text, "--requirements", str(report), *more)
    assert done.returncode == 1, done.stdout
    rows = {row["name"]: (row["ids"], row["outcome"]) for row in json.loads(report.read_text())}
    assert rows == {
        "test_it.py::test_a": (["1-001", "1-002"], "failed"),
        "test_it.py::test_b": (["1-001", "1-003"], "passed"),
        "test_it.py::test_c": (["1-004"], "failed"),
        "test_it.py::test_d": (["1-005"], "skipped"),
    }


def test_an_unknown_line_stops_every_run(tmp_path: Path) -> None:
    """Break: check the marks only with --requirements."""
    done = run_pytest(tmp_path, '@pytest.mark.req("1-001", "9-999")\ndef test_a(): pass\n')
    assert done.returncode not in (0, 1)
    assert "test_it.py::test_a: no line 9-999 in docs/requirements/" in done.stdout + done.stderr
