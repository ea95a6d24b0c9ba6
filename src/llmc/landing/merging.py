"""Merging: make the commit that lands from trees, on top of the base. Touches no checkout.

Git reads `.gitattributes` from the working directory. So a merge runs in a directory with only the base's: in a bare
repository they would be ignored, in a worktree the agent's own would decide what conflicts.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from llmc.attention.raising import advice
from llmc.base.clock import Aside
from llmc.base.errors import LlmcError, Refused, ToolFailed
from llmc.base.files import private_dir, remove_tree, unique
from llmc.base.names import WorkerName
from llmc.base.text import pattern
from llmc.landing import rules
from llmc.records.worker import Status
from llmc.repo import git
from llmc.repo.project import Project

_MERGE_TREE = ("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z")
#: do not let git guess an identity
_CONFIGURED_ONLY = ("-c", "user.useConfigOnly=true")
_REVERTS = pattern(r"\bThis reverts commit ([0-9a-f]{40,64})\b")
_ROW = "--format=%m%H%n%T%n%P%n%an%n%ae%n%aI%n%B"


class Conflicts(Exception):
    """Merge conflicts in `files`."""

    def __init__(self, files: Sequence[str]) -> None:
        super().__init__(", ".join(files))
        self.files = tuple(files)


class Commit(Struct, frozen=True):
    id: str
    tree: str
    parents: tuple[str, ...]
    author: str
    email: str
    date: str
    message: str

    @property
    def is_merge(self) -> bool:
        return len(self.parents) > 1


class Work(Struct, frozen=True):
    """The commits of a tip that the base lacks, oldest first; and those of the base that the tip lacks."""

    base: str
    tip: str
    base_tree: str
    #: their merge base
    parting: str
    commits: tuple[Commit, ...]
    others: tuple[Commit, ...]

    @property
    def on_base(self) -> bool:
        """Whether the tip contains the base."""
        return self.parting == self.base

    @property
    def has_merges(self) -> bool:
        return any(commit.is_merge for commit in self.commits)

    @property
    def message(self) -> str:
        texts = [rules.of_merge(c.message) if c.is_merge else c.message for c in self.commits]
        return rules.squashed(texts)

    @property
    def first(self) -> Commit:
        """The commit whose author is kept."""
        return next((commit for commit in self.commits if not commit.is_merge), self.commits[0])

    @property
    def tip_tree(self) -> str:
        for commit in self.commits:
            if commit.id == self.tip:
                return commit.tree
        raise LlmcError(
            f"{self.tip[:12]} is not a commit", hint="Run `llmc reset` for the worker that has it."
        )

    @property
    def author(self) -> str:
        return f"{self.first.author} <{self.first.email}>" if self.commits else ""

    @property
    def author_date(self) -> str:
        return self.first.date if self.commits else ""


class Made(Struct, frozen=True):
    """The commit that lands; `commit` is empty if its tree equals the base's."""

    commit: str
    tree: str
    subject: str
    work: Work


def landing_commit(project: Project, name: str, base: str, tip: str) -> Made:
    """All changes of the tip, as one commit on top of the base. Raises Conflicts."""
    with Aside(lambda: attributes_of(project, base)) as attributes:
        work = work_of(project, name, base, tip)
    tree = merged_tree(project, work, attributes)
    if tree == work.base_tree:
        return Made("", tree, "", work)
    message = work.message
    commit = commit_tree(project.root.path, tree, base, message, work.first)
    return Made(commit, tree, rules.subject(message), work)


def merged_tree(project: Project, work: Work, attributes: Aside[Path] | None = None) -> str:
    """The base's tree with all changes of the tip. Raises Conflicts. `attributes`: the directory of the base's."""
    if not work.commits:
        return work.base_tree
    if work.on_base:
        return work.tip_tree
    place = attributes.result() if attributes else attributes_of(project, work.base)
    return _merge_in(project, place, work.base, work.tip)


def collapsed(project: Project, work: Work) -> str:
    """All commits of the work as one, on top of the merge base, so that a rebase drops none of it.

    `git rebase` drops merge commits, and with them changes made in the merge itself.
    """
    return commit_tree(project.root.path, work.tip_tree, work.parting, work.message, work.first)


def work_of(project: Project, name: str, base: str, tip: str) -> Work:
    """Both sides since their merge base, in one call. Raises Refused unless there is exactly one merge base."""
    root = project.root.path
    flags = ["--reverse", "--topo-order", "--boundary", "--left-right", "--no-show-signature", "-z", _ROW]
    found: dict[str, list[Commit]] = {"<": [], ">": [], "-": []}
    for row in git.git(root, "log", *flags, f"{base}...{tip}", "--", timeout_s=300).stdout.split("\0"):
        if row:
            found[row[0]].append(_commit(row))
    edges = [commit.id for commit in found["-"]]
    if base in edges or base == tip:
        parting = base
    elif len(edges) == 1:
        parting = edges[0]
    else:
        parting = parting_point(project, name, base, tip)
    trees = {commit.id: commit.tree for commit in (*found["<"], *found["-"])}
    base_tree = trees.get(base) or git.tree_of(root, base)
    return Work(base, tip, base_tree, parting, tuple(found[">"]), tuple(found["<"]))


def parting_point(project: Project, name: str, base: str, tip: str) -> str:
    """The merge base of two commits; Refused if there is none, or several."""
    done = git.git(project.root.path, "merge-base", "--all", base, tip, check=False, timeout_s=300)
    if done.returncode not in (0, 1):
        raise ToolFailed(done.argv, done.returncode, done.stderr)
    points = done.stdout.split()
    branch = project.config.repo.default_branch
    if not points:
        raise Refused(
            f"cannot merge {name}'s commits with {branch}: unrelated histories",
            hint=asking(project, name, f"Rebase your work onto origin/{branch}."),
        )
    if len(points) > 1:
        raise Refused(
            f"cannot merge {name}'s commits: they have {len(points)} merge bases with {branch} "
            "because the two were merged into each other",
            hint=asking(project, name, f"Merge origin/{branch} into your branch again and commit."),
        )
    return points[0]


def asking(project: Project, name: str, request: str) -> str:
    """A hint for when only the worker can make the command possible. First it needs a conversation, to take a message."""
    message = f"`llmc message {name} {shlex.quote(request)}`. When the worker is done, run the command again."
    record = project.store.read().workers.get(WorkerName(name))
    if record is not None and record.status in (Status.OFFLINE, Status.NO_CHANGES):
        return f"{advice(project, name)}. Then run {message}"
    return f"Run {message}"


def _commit(row: str) -> Commit:
    name, tree, parents, author, email, date, message = row.split("\n", 6)
    return Commit(name[1:], tree, tuple(parents.split()), author, email, date, message)


def merge(project: Project, ours: str, theirs: str, *, base: str = "") -> str:
    """The tree of a three-way merge of two commits, with the attributes of `base`, else of ours. Raises Conflicts."""
    return _merge_in(project, attributes_of(project, base or ours), ours, theirs)


def _merge_in(project: Project, place: Path, ours: str, theirs: str) -> str:
    where = [f"--git-dir={git.git_dir(project.root.path).resolve()}", f"--work-tree={place}"]
    done = git.git(place, *where, *_MERGE_TREE, ours, theirs, check=False, timeout_s=600)
    tree, *files = done.stdout.split("\0")
    # A conflict exits with 1 and prints a tree; without a tree git could not merge at all.
    if done.returncode not in (0, 1) or not git.is_object_id(tree):
        raise ToolFailed(done.argv, done.returncode, done.stderr or done.stdout)
    if done.returncode == 1:
        raise Conflicts([name for name in files if name])
    return tree


def merge_with(project: Project, ancestor: str, ours: str, theirs: str, *, base: str) -> str:
    """Like `merge`, with a given common ancestor; `ours` and `theirs` are commits or trees. Raises Conflicts.

    `git merge-tree` has an option for this only since 2.40.
    """
    root = project.root.path
    one, other = (commit_on(root, tree, ancestor) for tree in (ours, theirs))
    return merge(project, one, other, base=base)


def commit_on(root: Path, tree: str, parent: str) -> str:
    """A commit that only holds a tree and its parent."""
    env = {f"GIT_{who}_{what}": "llmc" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return git.git(
        root, "commit-tree", f"{tree}^{{tree}}", "-p", parent, "-m", "side", env=env
    ).stdout.strip()


def brought_back(project: Project, work: Work, tree: str, also: Sequence[str] = ()) -> tuple[str, ...]:
    """Changes that were reverted on the branch and would return with this work, as short id and subject.

    The worker started before the revert and still has them. `also`: reverted commits that it had before it was rebased.
    """
    found = [
        id_
        for id_ in dict.fromkeys([*also, *taken_back(project, work)])
        if _comes_again(project, id_, work, tree)
    ]
    if not found:
        return ()
    flags = ["--no-walk", "--no-show-signature", "-z", "--format=%h %s"]
    return tuple(git.out(project.root.path, "log", *flags, *found, "--").strip("\0").split("\0"))


def taken_back(project: Project, work: Work) -> list[str]:
    """Commits removed from the branch since the worker started, by a revert or because the branch was moved back."""
    reverted = [id_ for commit in work.others for id_ in _REVERTS.findall(commit.message)]
    return [*_once_on_the_branch(project, work), *reverted]


def _once_on_the_branch(project: Project, work: Work) -> list[str]:
    log = git.git_dir(project.root.path) / "logs" / project.base
    try:
        rows = log.read_text(errors="replace").split("\n")
    except OSError:  # no reflog here
        return []
    tips = {row.split(" ", 2)[1] for row in rows if row.count(" ") > 1}
    return [commit.id for commit in work.commits if commit.id in tips]


def _comes_again(project: Project, commit: str, work: Work, tree: str) -> bool:
    """Whether the tree that lands has all changes of a commit, and the branch does not."""
    parent = git.resolve(project.root.path, f"{commit}^")
    if parent is None:
        return False

    def has_it(there: str) -> bool:
        try:
            return merge_with(project, parent, there, commit, base=work.base) == there
        except Conflicts:
            return False

    return has_it(tree) and not has_it(work.base_tree)


def dropped_by_merges(project: Project, work: Work) -> tuple[str, ...]:
    """Files where the worker's merge commit dropped the other side's changes without a conflict."""
    root = project.root.path
    found: list[str] = []
    for commit in (commit for commit in work.commits if commit.is_merge):
        remerge = ["show", "--remerge-diff", "--name-only", "-z", "--format=", commit.id]
        by_hand = git.listed(root, *remerge, check=False, timeout_s=300)
        own = ["diff-tree", "-r", "--name-only", "-z", "--no-renames", commit.parents[0], commit.id]
        taken = set(git.listed(root, *own, timeout_s=300))
        found += [name for name in by_hand if name not in taken]
    return tuple(dict.fromkeys(found))


def commit_tree(root: Path, tree: str, parent: str, message: str, author: Commit) -> str:
    """A commit with the author of another; the committer is the configured identity, else the author."""
    args = [*_CONFIGURED_ONLY, "commit-tree", tree, "-p", parent, "-F", "-"]
    text = message.encode("utf-8", "surrogateescape")
    env = {f"GIT_AUTHOR_{key}": value for key, value in _person(author).items()}
    done = git.git(root, *args, input=text, env={**env, "GIT_AUTHOR_DATE": author.date}, check=False)
    if not done.ok and "auto-detection is disabled" in done.stderr:
        env |= {f"GIT_COMMITTER_{key}": value for key, value in _person(author).items()}
        done = git.git(root, *args, input=text, env={**env, "GIT_AUTHOR_DATE": author.date})
    if not done.ok:
        raise ToolFailed(done.argv, done.returncode, done.stderr)
    return done.stdout.strip()


def _person(author: Commit) -> dict[str, str]:
    return {"NAME": author.author, "EMAIL": author.email}


def attributes_of(project: Project, commit: str) -> Path:
    """A directory with only the `.gitattributes` of a commit; shared by all commits with the same ones."""
    root = project.root.path
    files = _plain(git.files_of(root, commit, ":(glob)**/.gitattributes"))
    place = project.root.private / "attributes" / _name_of(files)
    if not place.is_dir():
        _write(root, files, place)
    return place


def _name_of(files: list[tuple[str, str]]) -> str:
    if not files:
        return "none"
    import hashlib  # saves 4 ms in most repositories

    return hashlib.sha256(repr(files).encode("utf-8", "backslashreplace")).hexdigest()


def _plain(files: list[tuple[str, str, str]]) -> list[tuple[str, str]]:
    """Object and path of each plain file. A forged tree could name paths outside the directory."""
    return [
        (blob, path)
        for mode, blob, path in files
        if mode.startswith("100") and not {"..", ".git", ""} & set(path.split("/"))
    ]


def _write(root: Path, files: list[tuple[str, str]], place: Path) -> None:
    """Create the directory atomically: a crash must not leave half of it, and no process may read half of it."""
    made = private_dir(private_dir(place.parent) / f"{place.name}{unique()}")
    for blob, path in files:
        folder = made
        for part in path.split("/")[:-1]:
            folder = private_dir(folder / part)
        text = git.git(root, "cat-file", "blob", blob).stdout
        target = folder / ".gitattributes"
        target.touch(mode=0o600)
        target.write_bytes(text.encode("utf-8", "surrogateescape"))
    try:
        made.rename(place)
    except OSError:  # another process made it at the same time
        remove_tree(made)
        if not place.is_dir():
            raise
