"""Checks that nothing was lost: all commits and uncommitted work of agents have landed or can be restored."""

from pathlib import Path

from llmc.rehearsal.drills.scratch import Scratch
from llmc.repo import git


def losses(scratch: Scratch) -> list[str]:
    """What was lost, as text; empty if nothing was."""
    return [*_commits(scratch), *_words(scratch), *_twice(scratch), *_completed(scratch)]


def _commits(scratch: Scratch) -> list[str]:
    """Commits of agents that did not land and that no ref of the root contains."""
    noted = scratch.marks / "made"
    lost, landed = [], set(scratch.landed())
    for sha in noted.read_text().split() if noted.exists() else []:
        done = git.git(scratch.root, "log", "-1", "--format=%s", sha, check=False)
        if not done.ok:
            lost.append(f"commit {sha[:10]} is lost")
            continue
        subject = done.stdout.strip()
        if int(subject.removeprefix("Task ")) in landed:
            continue
        refs = git.git(scratch.root, "for-each-ref", "--count=1", f"--contains={sha}", check=False)
        if not refs.stdout.strip() and not _is_a_head(scratch, sha):
            lost.append(f"no ref contains {sha[:10]} ({subject})")
    return lost


def _is_a_head(scratch: Scratch, sha: str) -> bool:
    """Whether the HEAD of a worktree contains a commit."""
    worktrees = (scratch.root / ".worktrees").glob("*")
    return any(
        git.git(path, "merge-base", "--is-ancestor", sha, "HEAD", check=False).ok for path in worktrees
    )


def _words(scratch: Scratch) -> list[str]:
    """Uncommitted work that is not in a worktree, not in the trash, and did not land."""
    written = [words for words, file in scratch.precious.items() if file.exists()]
    return [f"uncommitted work is lost: {words!r}" for words in written if not _is_there(scratch, words)]


def _is_there(scratch: Scratch, words: str) -> bool:
    files = [path for path in _files(scratch) if words in path.read_text(errors="replace")]
    if files:
        return True
    refs = git.git(scratch.root, "for-each-ref", "--format=%(objectname)").stdout.split()
    return any(git.git(scratch.root, "grep", "-q", "-F", words, sha, check=False).ok for sha in refs)


def _files(scratch: Scratch) -> list[Path]:
    places = (scratch.root / ".worktrees", scratch.root / ".llmc" / "trash", scratch.source)
    found = [path for place in places for path in place.rglob("*")]
    return [path for path in found if path.is_file() and ".git" not in path.parts]


def _twice(scratch: Scratch) -> list[str]:
    landed = scratch.landed()
    return [
        f"task {number} landed {landed.count(number)} times"
        for number in sorted(set(landed))
        if landed.count(number) > 1
    ]


def _completed(scratch: Scratch) -> list[str]:
    landed = set(scratch.landed())
    return [f"task {number} is completed but did not land" for number in sorted(scratch.completed() - landed)]
