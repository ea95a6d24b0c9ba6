"""A repository with ten thousand files, and bare git beside llmc."""

import os
import subprocess
from pathlib import Path

FOLDERS = 100
FILES = 100
IDENTITY = {"user.name": "Person", "user.email": "person@example.com"}


def fill(source: Path) -> None:
    """Ten thousand small files, committed."""
    for number in range(FOLDERS):
        folder = source / f"folder-{number}"
        folder.mkdir()
        for other in range(FILES):
            (folder / f"file-{other}.txt").write_text(f"{number} {other}\n" * 20)
    git(source, "add", "-A")
    git(source, "commit", "-q", "-m", "Ten thousand files")


def commit(place: Path, name: str, text: str) -> None:
    """One changed file, committed."""
    (place / name).write_text(text)
    git(place, "add", "--", name)
    git(place, "commit", "-q", "-m", f"Change {name}")


def git(place: Path, *args: str) -> str:
    identity = [word for key, value in IDENTITY.items() for word in ("-c", f"{key}={value}")]
    argv = ["git", "-C", str(place), *identity, *args]
    done = subprocess.run(argv, env=os.environ, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr}")
    return done.stdout.strip()
