"""Suggest settings for `llmc init`, based on the files of a repository. Pure."""

import hashlib
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from llmc.base import given

MAKEFILES = ("GNUmakefile", "makefile", "Makefile")

#: the files to look at, in the top directory
LOOKED_AT = (
    *MAKEFILES,
    *("package.json", "pnpm-lock.yaml", "yarn.lock", "bun.lock", "bun.lockb"),
    *("pyproject.toml", "tox.ini", "noxfile.py", "pytest.ini", "setup.cfg", "uv.lock", "poetry.lock"),
    *("Cargo.toml", "go.mod"),
)

#: the targets of a make rule: before the colon, on a line without a leading tab; `:=` is a variable
_RULE = re.compile(r"^ *([^\s#:=$][^#:=$\n]*?) *::?(?!:*=)", re.MULTILINE)
_DEFINITION = re.compile(r"^ *define\b.*?^ *endef\b", re.MULTILINE | re.DOTALL)
#: what `npm init` writes if there are no tests
_NO_TESTS = "no test specified"


class Suggestion(Struct, frozen=True):
    """A command for `repo.validate`, and why."""

    command: str
    because: str


def suggested_check(files: Mapping[str, str]) -> Suggestion | None:
    """The test command of a repository, or None.

    A make target comes first, because it says how this project is tested.
    """
    for rule in (_of_make, _of_node, _of_python):
        found = rule(files)
        if found is not None:
            return found
    alone = {"Cargo.toml": "cargo test", "go.mod": "go test ./..."}
    return next((Suggestion(run, f"found {name}") for name, run in alone.items() if name in files), None)


def _of_make(files: Mapping[str, str]) -> Suggestion | None:
    # make reads only the first of these
    name = next((name for name in MAKEFILES if name in files), None)
    if name is None:
        return None
    text = _DEFINITION.sub("", files[name].replace("\\\n", " "))
    targets = {target for rule in _RULE.findall(text) for target in rule.split()}
    target = next((wanted for wanted in ("test", "check") if wanted in targets), None)
    return Suggestion(f"make {target}", f"{name} has a {target} target") if target else None


def _of_node(files: Mapping[str, str]) -> Suggestion | None:
    script = _table(json_table(files.get("package.json", "")), "scripts").get("test")
    if not isinstance(script, str) or not script.strip() or _NO_TESTS in script:
        return None
    runners = {"pnpm-lock.yaml": "pnpm test", "yarn.lock": "yarn test"}
    runners |= dict.fromkeys(("bun.lock", "bun.lockb"), "bun run test")
    command = next((command for lock, command in runners.items() if lock in files), "npm test")
    return Suggestion(command, "package.json has a test script")


def _of_python(files: Mapping[str, str]) -> Suggestion | None:
    project = toml_table(files.get("pyproject.toml", ""))
    tools = _table(project, "tool")
    if "tox.ini" in files or "tox" in tools or "[tox:tox]" in files.get("setup.cfg", ""):
        return Suggestion("tox", "the project uses tox")
    if "noxfile.py" in files:
        return Suggestion("nox", "found noxfile.py")
    where = _where_pytest_is(files, project)
    if not where:
        return None
    runners = {"uv.lock": "uv run pytest", "poetry.lock": "poetry run pytest"}
    command = next((command for lock, command in runners.items() if lock in files), "python3 -m pytest")
    return Suggestion(command, f"{where} mentions pytest")


def _where_pytest_is(files: Mapping[str, str], project: Mapping[str, Any]) -> str:
    if "pytest.ini" in files:
        return "pytest.ini"
    if "[tool:pytest]" in files.get("setup.cfg", ""):
        return "setup.cfg"
    return "pyproject.toml" if _mentions_pytest(project) else ""


def _mentions_pytest(value: object) -> bool:
    """Whether there is a `pytest` table, or a requirement (`pytest>=8`) in any list or table."""
    if isinstance(value, Mapping):
        return any(key == "pytest" or _mentions_pytest(inner) for key, inner in value.items())
    if isinstance(value, list):
        return any(map(_mentions_pytest, value))
    return isinstance(value, str) and re.fullmatch(r"pytest\s*([<>=!~;\[@ ].*)?", value) is not None


def json_table(text: str) -> dict[str, Any]:
    """The object in a JSON file of the repository, which may begin with a byte order mark; {} for anything else."""
    try:
        found = given.parse(text.removeprefix("\ufeff"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def toml_table(text: str) -> dict[str, Any]:
    """The same for TOML."""
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return {}


def _table(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = data.get(key)
    return found if isinstance(found, dict) else {}


def task_list_id(source: str, root: str) -> str:
    """The task list ID of a root: the name of the repository and a hash of the root's path.

    So two roots of one repository have two lists, and a root created again has the same one.
    """
    name = re.split(r"[/:]", source.rstrip("/").removesuffix("/.git"))[-1].removesuffix(".git")
    safe = re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")[:40].strip("-") or "repo"
    return f"{safe}-{hashlib.sha256(root.encode('utf-8', 'surrogateescape')).hexdigest()[:6]}"
