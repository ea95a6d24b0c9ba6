"""Every way to have work in a worktree, and the proof that all of it is still reachable."""

from pathlib import Path

from tests.support.fleet import Fleet


def make_mess(fleet: Fleet, worker: str, mark: str) -> dict[str, str]:
    """A commit, and staged, changed, untracked and ignored files; maps each to its blob or commit id."""
    tree = fleet.worktree(worker)
    (tree / "committed.txt").write_text(f"committed {mark}\n")
    fleet.git("add", "committed.txt", cwd=tree)
    fleet.git("commit", "-q", "-m", f"Work {mark}", cwd=tree)
    (tree / "staged.txt").write_text(f"staged {mark}\n")
    fleet.git("add", "staged.txt", cwd=tree)
    staged = fleet.git("rev-parse", ":staged.txt", cwd=tree)
    (tree / "staged.txt").write_text(f"changed after staging {mark}\n")
    (tree / "README.md").write_text(f"changed {mark}\n")
    (tree / "new.txt").write_text(f"untracked {mark}\n")
    found = {"commit": fleet.git("rev-parse", "HEAD", cwd=tree), "staged": staged}
    for name in ("staged.txt", "README.md", "new.txt"):
        found[name] = fleet.git("hash-object", name, cwd=tree)
    return found


def lost(fleet: Fleet, wanted: dict[str, str]) -> list[str]:
    """What no ref of the root's clone reaches anymore."""
    reachable = fleet.git("rev-list", "--objects", "--all", cwd=fleet.root)
    known = {line.split(" ")[0] for line in reachable.splitlines()}
    return [what for what, object_id in wanted.items() if object_id not in known]


def trash_refs(fleet: Fleet) -> list[str]:
    return fleet.git("for-each-ref", "--format=%(refname)", "refs/llmc/trash", cwd=fleet.root).splitlines()


def is_clean(fleet: Fleet, worker: str) -> bool:
    tree: Path = fleet.worktree(worker)
    same = fleet.git("rev-parse", "HEAD", cwd=tree) == fleet.git("rev-parse", "main")
    on_branch = fleet.git("symbolic-ref", "HEAD", cwd=tree) == f"refs/heads/llmc/{worker}"
    return same and on_branch and fleet.git("status", "--porcelain", cwd=tree) == ""
