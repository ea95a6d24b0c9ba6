"""The docs match the code: generated parts are current, no command is missing, no link is dead."""

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from llmc.attention.rules import worker_view
from llmc.cli.commands import COMMANDS

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE, TESTS = REPOSITORY / "src" / "llmc", REPOSITORY / "tests"
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")])

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_FILE = re.compile(r"`([\w/.-]+\.py)`")
_DOCSTRING = re.compile(r'"""(.*?)"""', re.DOTALL)
_WORD = re.compile(r"\w+")
_MODULE = re.compile(r"[\w/]+\.py\b")
#: they describe files as they were
_HISTORY = ("CHANGELOG.md", "docs/texts.md")


def name_of(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def links(path: Path) -> list[str]:
    """The relative targets of a document's links."""
    found = [match["target"] for match in _LINK.finditer(_FENCE.sub("", path.read_text()))]
    return [target for target in found if "://" not in target and not target.startswith("mailto:")]


def anchors(path: Path) -> set[str]:
    """The fragments of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_generated_parts_are_fresh() -> None:
    """Break: change a line of ACTIONS, COMMANDS, STEPS, ALLOWED or a configuration key, and do not run make-docs."""
    argv = [sys.executable, str(REPOSITORY / "scripts" / "make-docs"), "--check"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nrun: .venv/bin/python scripts/make-docs"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_reference_names_every_command(command: str) -> None:
    """Break: take the list of commands out of the reference."""
    assert f"| `{command}` |" in (REPOSITORY / "docs/reference.md").read_text()


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_no_relative_link_is_dead(path: Path) -> None:
    """Break: rename a document, or a heading that another document links to."""
    for target in links(path):
        file, _, fragment = target.partition("#")
        place = path.parent / file if file else path
        assert place.exists(), f"{name_of(path)} links to {target}, which does not exist"
        assert not fragment or fragment in anchors(place), f"{name_of(path)}: {target} has no such heading"


@cache
def modules() -> set[str]:
    """Each module as texts name it: by its path below src/llmc or tests, or only by its file name."""
    found = (
        (path.name, str(path.relative_to(place))) for place in (SOURCE, TESTS) for path in place.rglob("*.py")
    )
    return {name for names in found for name in names}


def gone(files: Iterable[str]) -> list[str]:
    return [file for file in files if file not in modules() and not (REPOSITORY / file).is_file()]


def test_every_file_a_document_names_is_there() -> None:
    """Break: move a module and leave the map unchanged."""
    texts = {name_of(path): path.read_text() for path in DOCUMENTS if name_of(path) not in _HISTORY}
    named = {document: _FILE.findall(text) for document, text in texts.items()}
    assert named["docs/architecture.md"], "the map names files"
    assert {document: lost for document, files in named.items() if (lost := gone(files))} == {}


def test_what_a_test_says_to_break_is_there() -> None:
    """Break: rename `_of_groups` in goals/plan/plan_check.py, and leave the tests unchanged."""
    known = {word for path in SOURCE.rglob("*.py") for word in _WORD.findall(path.read_text())}
    wrong = {}
    for path in TESTS.rglob("*.py"):
        told = " ".join(text.partition("Break:")[2] for text in _DOCSTRING.findall(path.read_text()))
        names = {word for word in _WORD.findall(_MODULE.sub("", told)) if "_" in word}
        if lost := [*gone(_MODULE.findall(told)), *sorted(names - known)]:
            wrong[name_of(path)] = lost
    assert wrong == {}


def test_the_first_page_and_each_chapter_are_short() -> None:
    """A newcomer reads README in a few minutes, and a chapter of the guide in ten."""
    assert len((REPOSITORY / "README.md").read_text().split()) <= 1500
    chapters = (REPOSITORY / "docs/guide").glob("*.md")
    assert {path.name: words for path in chapters if (words := len(path.read_text().split())) > 2000} == {}


def test_the_map_has_every_folder() -> None:
    """Break: leave `tui/` out of the table of folders."""
    text = (REPOSITORY / "docs" / "architecture.md").read_text()
    listed = re.findall(r"^\| `(\w+)/` \|", text.partition("## Seams")[0], re.MULTILINE)
    folders = {path.parent.name for path in (REPOSITORY / "src" / "llmc").glob("*/__init__.py")}
    assert sorted(listed) == sorted(folders)


def test_the_example_of_the_status_is_whole() -> None:
    """Break: leave `conflicted_files` out of it."""
    text = (REPOSITORY / "docs" / "protocol.md").read_text().partition("## `llmc status --json`")[2]
    example = json.loads(text.partition("```json")[2].partition("```")[0])
    assert list(example["workers"][0]) == list(worker_view({"name": "adam"}, None))
