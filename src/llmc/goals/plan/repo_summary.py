"""Summarizes the repository for planners: languages, commands, directories, README; bounded and redacted. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from llmc.config.suggest import json_table, toml_table
from llmc.goals.drive.clean import redact
from llmc.goals.drive.words import fit

#: bytes in total, and of the README
MAX_BYTES, README_BYTES = 8_000, 2_500
#: maximum directories, top-level files, languages, and commands of one kind
MAX_DIRECTORIES, MAX_FILES, MAX_LANGUAGES, MAX_COMMANDS = 40, 40, 8, 30
LINE_BYTES = 300

READMES = ("README.md", "README.rst", "README.txt", "README", "readme.md", "Readme.md")
MANIFESTS = (
    *("Makefile", "makefile", "GNUmakefile", "justfile"),
    *("package.json", "pyproject.toml", "Cargo.toml", "go.mod"),
)

#: each language, followed by its file extensions
_ENDINGS = """
Python py pyi; JavaScript js mjs cjs jsx; TypeScript ts tsx mts; C c h; C++ cc cpp cxx hpp hh;
Shell sh bash zsh; Kotlin kt kts; HTML html htm; CSS css scss less; Elixir ex exs; OCaml ml mli;
Rust rs; Go go; Java java; Ruby rb; PHP php; Swift swift; C# cs; Scala scala; Haskell hs; Lua lua;
Perl pl; R r; Dart dart; Zig zig; SQL sql; Vue vue; Svelte svelte; Terraform tf; Nix nix; Clojure clj
"""
_LANGUAGES = {end: row.split()[0] for row in _ENDINGS.split(";") for end in row.split()[1:]}
_TARGET = re.compile(r"^([A-Za-z0-9][\w./-]*)[ \t]*:(?![=:])", re.MULTILINE)
_RECIPE = re.compile(r"^@?([a-z][\w-]*)(?:[ \t]+[^:=\n]*)?:(?!=)", re.MULTILINE)


class RepoFacts(Struct, frozen=True):
    """Facts about the repository at a commit."""

    commit: str
    branch: str
    files: tuple[str, ...] = ()
    readme: str = ""
    #: contents of `MANIFESTS`
    manifests: Mapping[str, str] = field(default_factory=dict)
    setup: str = ""
    validate: str = ""


def snapshot(facts: RepoFacts) -> str:
    """Summary of the repository; the README comes last and is cut first."""
    parts = [
        f"Branch {facts.branch} at {facts.commit[:12]}, {len(facts.files)} {'file' if len(facts.files) == 1 else 'files'}.",
        _listed("Languages (files)", _languages(facts.files)),
        _listed("Commands", [*_configured(facts), *_commands(facts.manifests)]),
        _listed("Directories (files)", _directories(facts.files)),
        _listed("Top-level files", _shortened([name for name in facts.files if "/" not in name], MAX_FILES)),
        f"README (start):\n{fit(facts.readme.strip(), README_BYTES)}" if facts.readme.strip() else "",
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
    """The first two directory levels with file counts, by name."""
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
    named = {"setup": facts.setup, "validation": facts.validate}
    return [f"`{command}` ({what})" for what, command in named.items() if command]


def _commands(manifests: Mapping[str, str]) -> list[str]:
    found: list[str] = []
    for name, text in manifests.items():
        match name:
            case "package.json":
                found += [f"npm run {script}" for script in _keys(json_table(text), "scripts")]
            case "pyproject.toml":
                found += _of_pyproject(toml_table(text))
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
