"""Real projects, contained: the agent and the checks run package managers and tests without configuration.

Packages come from files on this machine, through the real pip and the real npm.
"""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.contained import needs_bubblewrap
from tests.support.fleet import Fleet
from tests.support.packages import node_package, wheel_of

#: everything runs contained, and nothing of the tool chain is configured
CONTAINED = {"defaults.sandbox": "on"}
COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"

pytestmark = [
    needs_bubblewrap,
    pytest.mark.soak,
    pytest.mark.parametrize("fleet", [pytest.param("claude", marks=pytest.mark.real_client)], indirect=True),
]


def lands(fleet: Fleet, name: str, text: str, *, tests: str) -> None:
    """The agent runs the project's tests before and after its change, which then lands."""
    change = f"printf '%b' {text!r} > {name} && git add {name} && {COMMIT} 'Change'"
    fleet.llmc("start", "--prompt", f"@sh {tests} && {change} && {tests}\n@say done")
    fleet.wait("adam", "needs_review", timeout=120)
    fleet.llmc("accept", "adam", timeout=240)
    assert fleet.log()[0] == "Change"


def test_a_pip_project(fleet: Fleet) -> None:
    """Break: leave the user's settings out of `_of_tools` (repo/containment.py): pip finds no packages."""
    wheels = fleet.dir / "wheels"
    for name in ("pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        wheel_of(name, wheels)
    settings = fleet.home / ".config/pip/pip.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"[global]\nno-index = true\nfind-links = {wheels}\n")
    files = {
        "requirements.txt": "pytest\n",
        ".gitignore": "venv/\n__pycache__/\n.pytest_cache/\n",
        "greeting.py": "def greeting() -> str:\n    return 'hello'\n",
        "test_greeting.py": "from greeting import greeting\n\ndef test_it() -> None:\n    assert greeting().islower()\n",
    }
    fleet.plant(files, "A project")
    install = "python3 -m venv venv && venv/bin/pip install -q -r requirements.txt"
    checks = {"repo.setup": install, "repo.validate": "venv/bin/python -m pytest -q"}
    fleet.set_up("adam", config={**CONTAINED, **checks})
    assert (fleet.worktree("adam") / "venv/bin/pytest").exists()
    fleet.up()
    change = "def greeting() -> str:\\n    return 'good morning'\\n"
    lands(fleet, "greeting.py", change, tests="venv/bin/python -m pytest -q")
    again = f"rm -rf venv && {install}"
    lands(fleet, "greeting.py", change.replace("morning", "evening"), tests=f"{again} && venv/bin/pytest -q")
    assert "1 passed" in (fleet.root / "logs/adam.log").read_text()
    # A change that breaks the tests does not land.
    fleet.llmc(
        "start",
        "--prompt",
        f"@sh sed -i s/good/Good/ greeting.py && git add -u && {COMMIT} 'Breaks'\n@say done",
    )
    fleet.wait("adam", "needs_review", timeout=60)
    assert "1 failed" in fleet.llmc("accept", "adam", code=None, timeout=240).err + said(fleet)
    assert fleet.log()[0] == "Change"
    assert {path.name for path in (fleet.home / ".config").iterdir()} == {"pip"}
    assert not (fleet.home / ".cache").exists()


def said(fleet: Fleet) -> str:
    return (fleet.root / "logs/adam.log").read_text()


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_an_npm_project(fleet: Fleet) -> None:
    """Break: leave the caches out of `_of_tools` (repo/containment.py): npm cannot write logs and cache."""
    vendor = fleet.source / "vendor"
    node_package("greeter", {"index.js": "exports.greet = (name) => `hello ${name}`;\n"}, vendor)
    package = {
        "name": "project",
        "version": "1.0.0",
        "dependencies": {"greeter": "file:vendor/greeter-1.0.0.tgz"},
        "scripts": {"test": "node --test"},
    }
    (fleet.source / "package.json").write_text(json.dumps(package))
    (fleet.source / ".gitignore").write_text("node_modules/\n")
    (fleet.source / "whom.js").write_text("exports.whom = 'world';\n")
    (fleet.source / "it.test.js").write_text(
        "const {test} = require('node:test'); const assert = require('node:assert');\n"
        "test('greets', () => assert.match(require('greeter').greet(require('./whom.js').whom), /^hello /));\n"
    )
    fleet.git("add", "-A")
    fleet.git("commit", "-q", "-m", "A project")
    install = "npm install --no-package-lock"
    fleet.set_up("adam", config={**CONTAINED, "repo.setup": install, "repo.validate": "npm test"})
    assert (fleet.worktree("adam") / "node_modules/greeter/index.js").exists()
    fleet.up()
    again = f"rm -rf node_modules && {install} && npm test"
    lands(fleet, "whom.js", "exports.whom = 'moon';\\n", tests=again)
    assert "# pass 1" in said(fleet) or "pass 1" in said(fleet)
    assert list((fleet.root / ".llmc/cache/adam/npm").iterdir())
    assert sorted(path.name for path in Path(fleet.home).iterdir()) == [".local"]
