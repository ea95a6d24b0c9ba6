"""A Serena project per worktree: with one name for all of them, Serena would edit the files of another worktree."""

import re
import shutil
from pathlib import Path

from llmc.services.excludes import exclude
from llmc.services.project import Place, Project
from llmc.tools import git
from llmc.tools.files import write_atomic

_NAME = re.compile(r"^project_name[ \t]*:.*$", re.MULTILINE)


def settle(project: Project, place: Place, worktree: Path) -> None:
    """With [repo].serena: a project file with a name of the worker's own, never committed."""
    if not project.config.repo.serena:
        return
    theirs = Path(project.source) / ".serena/project.yml"
    if not theirs.is_file() and not shutil.which("serena"):
        return
    # A tracked file must not change; Serena lets the local one beside it win.
    tracked = git.git(worktree, "ls-files", "--error-unmatch", "--", ".serena/project.yml", check=False).ok
    name = ".serena/project.local.yml" if tracked else ".serena/project.yml"
    target = worktree / name
    if target.parent.is_symlink() or target.is_symlink():
        return  # it could lead out of the worktree
    have = target.read_text() if target.is_file() else ""
    start = have or (theirs.read_text() if theirs.is_file() and not tracked else "")
    wanted = named(start, f"{Path(project.source).name}-{place.name}")
    exclude(project, [name])
    if have != wanted:
        target.parent.mkdir(exist_ok=True)
        write_atomic(target, wanted.encode())


def named(text: str, name: str) -> str:
    """A project file with this name, and otherwise as it was."""
    line = f'project_name: "{name}"'
    if _NAME.search(text):
        return _NAME.sub(line, text, count=1)
    return f"{line}\n{text}"
