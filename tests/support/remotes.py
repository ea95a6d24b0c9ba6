"""A bare remote and the machines that land on it, in temporary directories."""

from pathlib import Path

from llmc.repo import fence
from llmc.repo.rules.fenced_push import Outcome, Remote, Seen
from tests.support.repos import Repo, Worktree, run_git


class BareRemote(Repo):
    def __init__(self, path: Path) -> None:
        super().__init__(path, bare=True)
        seed = Repo(path.parent / f"{path.name}-seed")
        seed.commit("first.txt")
        seed.git("push", "-q", str(path), "main")
        self.remote = Remote(str(path), "main", limit_s=30)

    def hook(self, name: str, text: str) -> None:
        hook = self.path / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\n{text}\n")
        hook.chmod(0o755)

    def drop_hook(self, name: str) -> None:
        (self.path / "hooks" / name).unlink()

    def log(self) -> list[str]:
        """The subjects on the branch, newest first."""
        return self.git("log", "--format=%s", "main").splitlines()

    def refs(self) -> list[str]:
        return self.git("for-each-ref", "--format=%(refname)").splitlines()

    def is_linear(self) -> bool:
        return self.git("rev-list", "--merges", "main") == ""


class Machine(Worktree):
    """A clone on another machine."""

    def __init__(self, path: Path, remote: Remote) -> None:
        run_git(path.parent, "clone", "-q", remote.address, str(path))
        super().__init__(path)
        self.remote = remote

    def look(self) -> Seen:
        return fence.look(self.path, self.remote)

    def on_top(self, subject: str) -> str:
        """A commit on top of the latest branch."""
        self.git("fetch", "-q", "origin", "main")
        tree = self.git("rev-parse", "FETCH_HEAD^{tree}")
        return self.git("commit-tree", tree, "-p", "FETCH_HEAD", "-m", subject)

    def push(self, seen: Seen, commit: str) -> Outcome:
        return fence.push(self.path, self.remote, seen, commit)
