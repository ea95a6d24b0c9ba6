"""A repository's llmc.root: read from the file without git, and always what git would say."""

import subprocess
from pathlib import Path

import pytest

from llmc.config import trust

PLAIN = "[core]\n\tbare = false\n[llmc]\n\troot = /a/root\n"
CONFIGS = {
    "as init writes it": (PLAIN, True),
    "the last one counts": (f"{PLAIN}[llmc]\n\troot = /b\n", True),
    "capitals": ("[llmc]\n\tRoot = /a\n", True),
    "a section in capitals": (f"{PLAIN}[LLMC]\n\troot = /b\n", False),
    "a section with a name": (f'{PLAIN}[llmc "x"]\n\troot = /b\n', False),
    "on the line of its section": (f"{PLAIN}[llmc] root = /b\n", False),
    "quoted": ('[llmc]\n\troot = "/a b"\n', False),
    "with a comment": ("[llmc]\n\troot = /a # mine\n", False),
    "on two lines": ("[llmc]\n\troot = /a\\\n/b\n", False),
    "another file": (f"{PLAIN}[include]\n\tpath = other\n", False),
    "of a worktree": (f"[extensions]\n\tworktreeConfig = true\n{PLAIN}", False),
    "another section": ("[llmc]\n[other]\n\troot = /a\n", False),
    "no value": ("[llmc]\n\troot\n", False),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_it_is_what_git_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Break: leave `[llmc` out of the odd rows; take the first row instead of the last."""
    text, is_plain = CONFIGS[name]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    config = tmp_path / ".git/config"
    config.write_text("[core]\n\trepositoryformatversion = 0\n" + text)
    (tmp_path / ".git/other").write_text("[llmc]\n\troot = /included\n")
    (tmp_path / ".git/config.worktree").write_text("[llmc]\n\troot = /own\n")
    below = tmp_path / "a/b"
    below.mkdir(parents=True)
    asked = []

    def ask() -> str | None:
        asked.append(name)
        said = subprocess.run(
            ["git", "-C", str(below), "config", "--get", "llmc.root"], capture_output=True, text=True
        )
        return said.stdout.strip() or None

    found = trust.root_of_repository(str(below), {}, ask)
    assert bool(asked) is not is_plain
    assert found == ask()


def test_a_git_hook_around_us_has_its_own_settings(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text(PLAIN)
    assert trust.root_of_repository(str(tmp_path), {}, lambda: "/asked") == "/a/root"
    assert trust.root_of_repository(str(tmp_path), {"GIT_DIR": "/x"}, lambda: "/asked") == "/asked"
