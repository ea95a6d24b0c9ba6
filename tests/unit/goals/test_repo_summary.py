"""A summary of a repository: bounded, without secrets, and with what a planner needs."""

import pytest

from llmc.goals.drive.clean import CAPS, check_typed
from llmc.goals.plan.repo_summary import (
    MAX_BYTES,
    MAX_DIRECTORIES,
    MAX_FILES,
    README_BYTES,
    RepoFacts,
    snapshot,
)

FILES = (
    "Makefile",
    "README.md",
    "pyproject.toml",
    "src/shop/cart.py",
    "src/shop/pay.py",
    "tests/test_cart.py",
    "web/a.ts",
)
MAKEFILE = "VERSION := 1\n.PHONY: test\ntest: build\n\tpytest\nbuild:\n\tpython -m build\nlint::\n\truff\n"
PYPROJECT = '[project]\nname = "shop"\n[project.scripts]\nshop = "shop:main"\n[tool.pytest.ini_options]\n'


@pytest.mark.req("3-063", "3-082")
def test_it_says_what_is_there_and_how_it_is_run() -> None:
    """Break: leave `_commands` or `_languages` out of `snapshot`."""
    facts = RepoFacts(
        commit="c0ffee" * 7,
        branch="main",
        files=FILES,
        readme="# Shop\n\nSells things.\n",
        manifests={
            "Makefile": MAKEFILE,
            "pyproject.toml": PYPROJECT,
            "package.json": '{"scripts": {"dev": "vite"}}',
        },
        validate="make test",
    )
    assert snapshot(facts).split("\n\n") == [
        "Branch main at c0ffeec0ffee, 7 files.",
        "Languages (files): Python (3), TypeScript (1)",
        "Commands: `make test` (validation), make test, make build, pytest (configured), shop (installed), npm run dev",
        "Directories (files): src/ (2), src/shop/ (2), tests/ (1), web/ (1)",
        "Top-level files: Makefile, README.md, pyproject.toml",
        "README (start):\n# Shop",
        "Sells things.",
    ]


@pytest.mark.req("3-016", "3-063")
def test_it_is_bounded_and_has_no_secret() -> None:
    """A store that refuses secrets takes it as it is. Break: leave `redact` or `fit` out of `snapshot`."""
    facts = RepoFacts(
        commit="1" * 40,
        branch="main",
        files=tuple(f"d{n % 300}/" + "e" * 200 + f"/f{n}.py" for n in range(50_000)) + ("x" * 5000,) * 100,
        readme="export API_TOKEN=ghp_" + "a1B2" * 9 + "\n" + "é" * 100_000,
        manifests={
            "package.json": "[" * 10_000,
            "pyproject.toml": "[[[",
            "Makefile": "\n".join(f"t{n}:" for n in range(9999)),
        },
    )
    text = snapshot(facts)
    assert len(text.encode()) <= MAX_BYTES <= CAPS["repo_context_snapshot"]
    assert check_typed("repo_context_snapshot", text) == text
    assert "make t0" in text
    # With little else in it, the README is cut, and secrets at its start are not shown.
    small = snapshot(RepoFacts(commit="1" * 40, branch="main", files=facts.files[-1:], readme=facts.readme))
    beginning = small.partition("README (start):\n")[2]
    assert beginning.startswith("export API_TOKEN=")
    assert "ghp_" not in small
    assert README_BYTES - 200 < len(beginning.encode()) <= README_BYTES


def test_only_so_many_names_are_listed() -> None:
    """Break: say that there are more, and still list them all."""
    files = tuple(f"f{n:03}" for n in range(MAX_FILES + 5)) + tuple(
        f"d{n:03}/x/y" for n in range(MAX_DIRECTORIES)
    )
    text = snapshot(RepoFacts(commit="1" * 40, branch="main", files=files))
    (top,) = [part for part in text.split("\n\n") if part.startswith("Top-level files: ")]
    assert top.endswith(f"f{MAX_FILES - 1:03}, and 5 more")
    (folders,) = [part for part in text.split("\n\n") if part.startswith("Directories (files): ")]
    assert (folders.count("/ ("), folders.endswith(f", and {MAX_DIRECTORIES} more")) == (
        MAX_DIRECTORIES,
        True,
    )


@pytest.mark.parametrize(
    ("name", "text", "command"),
    [
        ("package.json", '{"scripts": {"dev": "vite"}}', "npm run dev"),
        ("pyproject.toml", "[tool.tox]\n", "tox (configured)"),
    ],
)
def test_a_byte_order_mark_hides_no_command(name: str, text: str, command: str) -> None:
    """Break: parse a manifest's text with its byte order mark."""
    facts = RepoFacts(commit="1" * 40, branch="main", manifests={name: f"\ufeff{text}"})
    assert f"Commands: {command}" in snapshot(facts)
