"""Validation away from the agents: a tree without .gitignore, checked by its own tests; none of it lands."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.fleet import Fleet

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"
#: only the standard library and what the test installs; bytecode is written, as by default
PYTHON = f"env -u PYTHONDONTWRITEBYTECODE {sys.executable}"
TREE = "django==4.2.16"


def fill(source: Path, packages: int) -> None:
    """A project with a test beside each module; its tests leave __pycache__ and a report behind."""
    for number in range(packages):
        folder = source / f"pkg{number}"
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        (folder / "code.py").write_text(f"def value():\n    return {number}\n")
        (folder / "test_code.py").write_text(
            "import unittest\n"
            f"from pkg{number}.code import value\n\n\n"
            "class Case(unittest.TestCase):\n"
            "    def test_value(self):\n"
            f"        self.assertEqual(value(), {number})\n"
        )


def commit_all(fleet: Fleet, message: str) -> list[str]:
    fleet.git("add", "-A")
    fleet.git("commit", "-q", "-m", message)
    return fleet.git("ls-tree", "-r", "--name-only", "HEAD").splitlines()


def work(fleet: Fleet, script: str, subject: str) -> None:
    """What an agent does that commits everything in its worktree."""
    fleet.llmc("start", "--worker", "adam", "--prompt", f"@sh {script}; git add -A; {COMMIT} '{subject}'")
    fleet.wait("adam", "needs_review", 60)


def assert_landed_clean(fleet: Fleet, before: list[str]) -> None:
    assert fleet.git("ls-tree", "-r", "--name-only", "main").splitlines() == before
    assert fleet.git("status", "--porcelain") == ""
    assert fleet.git("status", "--porcelain", "--ignored", cwd=fleet.worktree("adam")) == ""
    assert fleet.llmc("status", "--json").json.get("attention", []) == []


def fail_then_fix_then_land(fleet: Fleet, break_it: str, fix_it: str, named: str) -> None:
    """A failure is reported with paths of the worktree; one message later it passes and lands."""
    work(fleet, break_it, "Break it")
    failed = fleet.llmc("accept", "adam", code=1, timeout=300, quotes=True)
    assert "validation failed" in failed.err
    log = (fleet.root / "logs/adam.log").read_text()
    assert f"{fleet.worktree('adam')}/{named}" in log
    assert ".llmc/slots" not in log + failed.err
    assert fleet.git("status", "--porcelain", cwd=fleet.worktree("adam")) == "", "files of the check"
    fleet.llmc("reject", "adam", f"@sh {fix_it}; git add -A; {COMMIT} 'Fix it'")
    fleet.wait("adam", "needs_review", 60)
    fleet.llmc("accept", "adam", timeout=300)


@pytest.mark.soak
def test_a_tree_without_gitignore_is_checked_by_its_own_tests(scripted: Fleet) -> None:
    """Break: `repo.validate_in = "worktree"` in what follows: __pycache__ counts as the agent's and lands."""
    fill(scripted.source, 100)
    before = commit_all(scripted, "A project")
    check = f"{PYTHON} -m unittest discover -q -p 'test_*.py' -t . -s . && touch report.xml"
    scripted.set_up("adam", config={"repo.validate": check})
    scripted.up("--no-patrol")
    fail_then_fix_then_land(
        scripted,
        "sed -i 's/return 7$/return 8/' pkg7/code.py",
        "sed -i 's/return 8$/return 7 + 0/' pkg7/code.py",
        "pkg7/test_code.py",
    )
    assert scripted.log()[0] == "Break it"
    assert "return 7 + 0" in (scripted.source / "pkg7/code.py").read_text()
    assert_landed_clean(scripted, before)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_an_unpacked_sdist_of_a_large_project(scripted: Fleet, tmp_path: Path) -> None:
    """Thousands of files, no .gitignore, and real tests with real dependencies."""
    deps = unpack(scripted, tmp_path)
    before = commit_all(scripted, "Unpacked")
    assert len(before) > 5000
    assert not [name for name in before if name.endswith(".gitignore")]
    tests = "utils_tests.test_text utils_tests.test_html template_tests.filter_tests.test_slugify"
    check = f"PYTHONPATH=$PWD:{deps} {PYTHON} tests/runtests.py --parallel 1 {tests}"
    scripted.set_up("adam", config={"repo.validate": check})
    scripted.up("--no-patrol")
    fail_then_fix_then_land(
        scripted,
        "sed -i 's/value.lower()/value.upper()/' django/utils/text.py",
        "sed -i 's/value.upper()/value.lower()/' django/utils/text.py; echo '# checked' >> django/utils/text.py",
        "tests/",
    )
    assert_landed_clean(scripted, before)
    scripted.llmc("undo", "--yes", timeout=300)
    assert "# checked" not in (scripted.source / "django/utils/text.py").read_text()
    assert_landed_clean(scripted, before)


def unpack(fleet: Fleet, place: Path) -> Path:
    """The sdist in the source, its dependencies in their own directory; skips without a registry."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    deps = place / "deps"
    for argv in (
        [*pip, "download", "--no-deps", "--no-binary", ":all:", "-d", str(place), TREE],
        [*pip, "install", "--target", str(deps), "asgiref>=3.6,<4", "sqlparse>=0.3.1"],
    ):
        done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, "HOME": str(place)})
        if done.returncode:
            pytest.skip(f"THE REGISTRY CANNOT BE REACHED: a real tree was NOT checked: {done.stderr[-300:]}")
    (archive,) = place.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(place / "sdist", filter="data")
    (tree,) = (place / "sdist").iterdir()
    for entry in tree.iterdir():
        entry.rename(fleet.source / entry.name)
    return deps
