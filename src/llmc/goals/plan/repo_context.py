"""A repository in short, for a planner: what it is, its files, languages and commands. Pure.

It is kept with the goal, so it is bounded, and secrets are taken out: a README is written by others.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from llmc.goals.drive.secrets import redact
from llmc.goals.drive.words import fit

#: bytes in all, and of the README's beginning
MAX_BYTES, README_BYTES = 8_000, 2_500
#: most directories, files at the top, languages, and commands of one kind
MAX_DIRECTORIES, MAX_FILES, MAX_LANGUAGES, MAX_COMMANDS = 40, 40, 8, 30
#: most bytes of one entry
LINE_BYTES = 300

READMES = ("README.md", "README.rst", "README.txt", "README", "readme.md", "Readme.md")
#: files that name commands
MANIFESTS = (
    "Makefile",
    "makefile",
    "GNUmakefile",
    "justfile",
    "package.json",
    "pyproject.toml",
    "Cargo.toml",
    "go.mod",
)

_LANGUAGES = {
    **dict.fromkeys(("py", "pyi"), "Python"),
    **dict.fromkeys(("js", "mjs", "cjs", "jsx"), "JavaScript"),
    **dict.fromkeys(("ts", "tsx", "mts"), "TypeScript"),
    **dict.fromkeys(("c", "h"), "C"),
    **dict.fromkeys(("cc", "cpp", "cxx", "hpp", "hh"), "C++"),
    **dict.fromkeys(("sh", "bash", "zsh"), "Shell"),
    **dict.fromkeys(("kt", "kts"), "Kotlin"),
    **dict.fromkeys(("html", "htm"), "HTML"),
    **dict.fromkeys(("css", "scss", "less"), "CSS"),
    **dict.fromkeys(("ex", "exs"), "Elixir"),
    **dict.fromkeys(("ml", "mli"), "OCaml"),
    "rs": "Rust",
    "go": "Go",
    "java": "Java",
    "rb": "Ruby",
    "php": "PHP",
    "swift": "Swift",
    "cs": "C#",
    "scala": "Scala",
    "hs": "Haskell",
    "lua": "Lua",
    "pl": "Perl",
    "r": "R",
    "dart": "Dart",
    "zig": "Zig",
    "sql": "SQL",
    "vue": "Vue",
    "svelte": "Svelte",
    "tf": "Terraform",
    "nix": "Nix",
    "clj": "Clojure",
}
_TARGET = re.compile(r"^([A-Za-z0-9][\w./-]*)[ \t]*:(?![=:])", re.MULTILINE)
_RECIPE = re.compile(r"^@?([a-z][\w-]*)(?:[ \t]+[^:=\n]*)?:(?!=)", re.MULTILINE)


class RepoFacts(Struct, frozen=True):
    """What was seen of a commit."""

    commit: str
    branch: str
    files: tuple[str, ...] = ()
    readme: str = ""
    #: what is in the files of `MANIFESTS` that there are
    manifests: Mapping[str, str] = field(default_factory=dict)
    #: [repo].setup and [repo].validate
    setup: str = ""
    validate: str = ""


def snapshot(facts: RepoFacts) -> str:
    """The repository in a few paragraphs; the README comes last, and is cut first."""
    parts = [
        f"Branch {facts.branch} at {facts.commit[:12]}, {len(facts.files)} files.",
        _listed("Languages (files)", _languages(facts.files)),
        _listed("Commands", [*_configured(facts), *_commands(facts.manifests)]),
        _listed("Directories (files)", _directories(facts.files)),
        _listed("Files at the top", _shortened([name for name in facts.files if "/" not in name], MAX_FILES)),
        f"README, its beginning:\n{fit(facts.readme.strip(), README_BYTES)}" if facts.readme.strip() else "",
    ]
    return fit(redact("\n\n".join(part for part in parts if part)), MAX_BYTES)


def _listed(title: str, rows: Iterable[str]) -> str:
    text = ", ".join(fit(" ".join(row.split()), LINE_BYTES) for row in rows)
    return f"{title}: {text}" if text else ""


def _languages(files: Iterable[str]) -> list[str]:
    known = (
        _LANGUAGES.get(name.rpartition(".")[2].lower()) for name in files if "." in name.rpartition("/")[2]
    )
    counted = Counter(language for language in known if language)
    return [f"{language} ({count})" for language, count in counted.most_common(MAX_LANGUAGES)]


def _directories(files: Iterable[str]) -> list[str]:
    """The first two levels, each with the number of files below it, in the order of their names."""
    counted: Counter[str] = Counter()
    for name in files:
        above = name.split("/")[:-1]
        counted.update("/".join(above[:depth]) for depth in (1, 2) if len(above) >= depth)
    largest = dict(counted.most_common(MAX_DIRECTORIES))
    return _shortened(
        [f"{name}/ ({largest[name]})" for name in sorted(largest)], MAX_DIRECTORIES, len(counted)
    )


def _shortened(rows: list[str], most: int, of: int | None = None) -> list[str]:
    left = (len(rows) if of is None else of) - most
    return [*rows[:most], f"and {left} more"] if left > 0 else rows


def _configured(facts: RepoFacts) -> list[str]:
    named = {"set-up": facts.setup, "check of all work": facts.validate}
    return [f"`{command}` ({what})" for what, command in named.items() if command]


def _commands(manifests: Mapping[str, str]) -> list[str]:
    found: list[str] = []
    for name, text in manifests.items():
        match name:
            case "package.json":
                found += [f"npm run {script}" for script in _keys(_json(text), "scripts")]
            case "pyproject.toml":
                found += _of_pyproject(_toml(text))
            case "Cargo.toml":
                found += ["cargo build", "cargo test"]
            case "go.mod":
                found += ["go build ./...", "go test ./..."]
            case "justfile":
                found += [f"just {recipe}" for recipe in _names(_RECIPE, text)]
            case _:
                found += [f"make {target}" for target in _names(_TARGET, text)]
    return found


def _names(pattern: re.Pattern[str], text: str) -> list[str]:
    return list(dict.fromkeys(pattern.findall(text)))[:MAX_COMMANDS]


def _of_pyproject(table: dict[str, Any]) -> list[str]:
    tools = [tool for tool in ("pytest", "tox", "nox", "ruff", "mypy") if tool in _keys(table, "tool")]
    project = table.get("project")
    scripts = _keys(project, "scripts") if isinstance(project, dict) else []
    return [*(f"{tool} (configured)" for tool in tools), *(f"{script} (installed)" for script in scripts)]


def _keys(holder: Any, key: str) -> list[str]:
    found = holder.get(key) if isinstance(holder, dict) else None
    return [str(name) for name in found][:MAX_COMMANDS] if isinstance(found, dict) else []


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return {}
