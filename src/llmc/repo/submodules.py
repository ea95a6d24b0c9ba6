"""Submodules of a worktree, taken from the source's own copies if it has them, else from their URL.

Git forbids submodules from a local path by default; llmc allows only the source's own submodule repositories. An agent
can write `.gitmodules`, and llmc's git has the user's keys, so it fetches only from the URLs of the default branch.

A checkout that moves a submodule leaves behind its commits, if no branch names them: so llmc pins them first, like
everything else that is only there. Which submodules there are, the index says; from `.gitmodules`, which an agent can
change at any time, come only names and URLs.

In the worktree of a contained worker, git has no network. So llmc fetches a submodule into a repository of its own
(`.llmc/submodules`), where no agent can write, and git in the worktree fetches from there.
"""

import contextlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from llmc.base import inside, urls
from llmc.base.errors import LlmcError, Refused, ToolFailed
from llmc.base.files import explain, private_dir, remove_tree
from llmc.base.proc import Done
from llmc.config import root_layout
from llmc.config.paths import Root
from llmc.records.worker import WorkerRecord
from llmc.repo import git, git_dirs, indexes, trash, uncommitted
from llmc.repo.project import Project
from llmc.repo.rules.clone_config import NO_PUSH

#: the commit of a submodule that llmc checked out last: from elsewhere, even if no branch there names it
_FETCHED = "refs/remotes/llmc/fetched"


class Submodule(Struct, frozen=True):
    name: str
    path: str
    commit: str


def update(project: Project, worktree: Path, worker: str, *, leave_work: bool = False) -> list[str]:
    """Check out every submodule at the commit of its superproject; returns problems.

    Work in a submodule is pinned first for `worker`, if given. With `leave_work`, a submodule that has any stays as it
    is: an agent may continue there.
    """
    if not _has_any(worktree):
        return []
    base = git.resolve(project.root.path, project.base)
    kept = None
    if git_dirs.own_repo(worktree) is not None:
        kept = private_dir(project.root.path / root_layout.SUBMODULES)
    source = urls.split(project.source).address
    made = _Update(project.root, worktree, worker, kept, leave_work)
    return made.run(worktree, _store(project), base, source)


def pin_changes(
    project: Project, record: WorkerRecord, worktree: Path, commit: str, why: str
) -> dict[str, str | None]:
    """Prepare a reset: pin work that is only in submodules; returns the refs by path, None for one without such work.

    A submodule that the commit lacks, or has without an entry in `.gitmodules`, goes to the trash: git would leave or
    overwrite it. So does one that git cannot read, or whose repository names more files than llmc reads.
    """
    here = [path for path in _gitlinks(worktree) if _is_checked_out(worktree, path)]
    if not here:
        return {}
    pinned: dict[str, dict[str, str | None]] = {}
    for path in here:
        try:
            places = _inner_first(worktree, path)
            pinned[path] = {at: _pin_one(project.root, record.name, worktree / at, why) for at in places}
        except git.WaitsForPipe:
            raise
        except ToolFailed:  # git cannot read it, or llmc does not read that much
            continue
    rows = git.rows(git.git(worktree, "ls-tree", "-z", commit, "--", *here).stdout)
    wanted = {row.partition("\t")[2] for row in rows if row.startswith("160000 ")}
    stays = wanted & _names(worktree, "--blob", f"{commit}:.gitmodules").keys() & pinned.keys()
    gone = [path for path in here if path not in stays]
    if gone:
        ref = trash.pin_commit(project.root, record.name, why, git.head(worktree))
        trash.take_out(worktree, gone, trash.folder_of(project.root, ref))
    return {at: ref for path in here if path in stays for at, ref in pinned[path].items()}


def _inner_first(worktree: Path, path: str) -> list[str]:
    """A submodule and those in it, the innermost first."""
    place = worktree / path
    inner = [f"{path}/{name}" for name in _gitlinks(place) if _is_checked_out(place, name)]
    return [*(found for name in inner for found in _inner_first(worktree, name)), path]


def _pin_one(root: Root, worker: str, place: Path, why: str, more: Iterable[str] = ()) -> str | None:
    """Pin what only this checkout of a submodule has, and ignored files in `more`; returns the ref, None if nothing."""
    uncommitted.show_hidden_changes(place)
    state = uncommitted.tree_state(place)
    blocked = {*more, *(trash.of_another_kind(place, state.tracked) if state.head else ())}
    own = _has_own_commits(place, state)
    if not own and not blocked and state.clean:
        return None
    tips = [tip for (tip,) in git.refs(place, "refs/heads", "objectname")] if own else []
    return trash.pin(root, place, worker, why, ignored=sorted(blocked), tips=tips)


def _has_own_commits(place: Path, state: uncommitted.TreeState) -> bool:
    """Whether HEAD or a branch has commits that were not fetched, and are not pinned yet."""
    tips = ["--branches", *(["HEAD"] if state.head else [])]
    saved = ["--remotes", f"--glob={trash.PREFIX}*"]
    return bool(git.out(place, "rev-list", "--max-count=1", *tips, "--not", *saved))


def _has_work(place: Path) -> bool:
    try:
        state = uncommitted.tree_state(place)
        return not state.clean or _has_own_commits(place, state)
    except ToolFailed:
        return True


def clean(
    project: Project, record: WorkerRecord, worktree: Path, before: Mapping[str, str | None], why: str
) -> None:
    """Finish a reset: remove everything of the old task from the submodules in `before`. Work is already pinned."""
    for path, kept in before.items():
        git.git(worktree / path, "reset", "--quiet", "--hard", timeout_s=300)
        trash.remove_untracked(project.root, worktree / path, record.name, why, kept)


def make_readable(top: Path, name: str) -> None:
    """Make repositories of submodules below a directory readable without their checkouts, if there are any."""
    with contextlib.suppress(FileNotFoundError):
        for at, _, names in inside.walk(top, name):
            if "config" in names:
                file = str(top / at.path / "config")
                with contextlib.suppress(LlmcError):  # a path that is too long
                    git.git(top, "config", "--file", file, "--unset", "core.worktree", check=False)


def scrub(worktree: Path, *, ignored: bool) -> None:
    """Remove everything that is not committed from the submodules of a slot; with `ignored`, ignored files too."""
    if _has_any(worktree):
        # A new index has no bits that hide a change (`skip-worktree`, `assume-unchanged`).
        again = (
            "git read-tree HEAD && { git update-index -q --refresh; git reset -q --hard; } && git clean -ffdq"
        )
        each = again + ("x" if ignored else "")
        git.git(worktree, "submodule", "foreach", "--quiet", "--recursive", each, timeout_s=600)


def refuse_unknown_commits(project: Project, record: WorkerRecord) -> None:
    """Refuse a submodule commit that only the worker has: it could not be fetched anywhere else."""
    import shlex  # few commands need it

    worktree = Path(record.worktree_path)
    store = _store(project) if _has_any(worktree) else None
    if store is None:
        return
    for module in _listed(worktree):
        place = worktree / module.path
        known = git.has_commit(store / module.name, module.commit)
        if (store / module.name).is_dir() and not known and (place / ".git").exists():
            theirs = Path(project.source) / module.path
            fetch = shlex.join(["git", "-C", str(theirs), "fetch", str(place), module.commit])
            raise Refused(
                f"{record.name} moved the submodule {module.path} to {module.commit[:12]}, which the source repository does not have",
                hint=f"Run `{fetch}`, then run the command again.",
            )


class _Update(Struct, frozen=True):
    root: Root
    worktree: Path
    #: for whom work is pinned; "": nobody works there
    worker: str
    #: where llmc keeps submodules for contained workers; None: git in the worktree has a network
    kept: Path | None
    leave_work: bool

    def run(self, superproject: Path, store: Path | None, reviewed: str | None, source: str) -> list[str]:
        """Check out the submodules; returns problems. `source`: the base of relative URLs.

        `reviewed`: the commit of the superproject whose URLs are followed; None: the source's own copies only.
        """
        problems: list[str] = []
        followed = _urls(superproject, "--blob", f"{reviewed}:.gitmodules") if reviewed else {}
        asked = _urls(superproject, "--file", ".gitmodules")
        for module in _listed(superproject):
            place = superproject / module.path
            url = asked.get(module.name, "")
            url = _absolute(url, source) if url == followed.get(module.name) else ""
            theirs = store / module.name if store else None
            is_here = _is_checked_out(superproject, module.path)
            if not is_here or git.resolve(place, "HEAD") != module.commit:
                if self.leave_work and (
                    _has_work(place) if is_here else _has_files(superproject, module.path)
                ):
                    continue
                done = self._fetch(superproject, module, theirs if theirs and theirs.is_dir() else None, url)
                if done is None or not done.ok:
                    problems.append(_problem(module, done))
                    continue
                if not _is_checked_out(superproject, module.path):
                    continue  # `update = none`: git skips it, and would run in the superproject
                git.git(place, "config", "remote.origin.pushurl", NO_PUSH)
                git.git(place, "update-ref", _FETCHED, module.commit)
            if _has_any(place):
                inner = theirs / "modules" if theirs else None
                known = module.commit if reviewed and _pins(superproject, reviewed, module) else None
                found = self.run(place, inner, known, url)
                problems += [f"{module.path}: {problem}" for problem in found]
        return problems

    def _fetch(self, superproject: Path, module: Submodule, theirs: Path | None, url: str) -> Done | None:
        """Fetch and check out a submodule, from the source's own copy, else from its URL; None if there is neither."""
        from hashlib import sha1  # takes 4 ms, and only submodules need it

        done: Done | None = None
        places: list[Path | str] = [*([theirs] if theirs else []), *([url] if url else [])]
        for place in places:
            near = place if isinstance(place, Path) else None
            if self.kept is not None:
                near = self.kept / sha1(str(place).encode("utf-8", "surrogateescape")).hexdigest()
                done = _bring(near, place, module.commit)
                if not done.ok:
                    continue
            self._save(superproject, module, near)
            done = _check_out(superproject, module, near)
            if done.ok:
                break
        return done

    def _save(self, superproject: Path, module: Submodule, near: Path | None) -> None:
        """Pin what checking out another commit of a submodule would leave behind or overwrite."""
        if not self.worker:
            return
        if not _is_checked_out(superproject, module.path):
            self._save_what_is_left(superproject, module)
            return
        place, blocked = superproject / module.path, set[str]()
        if not git.has_commit(place, module.commit) and near is not None:
            git.git(place, "fetch", "--quiet", "--no-tags", str(near), module.commit, check=False)
        if git.has_commit(place, module.commit):
            blocked = trash.in_the_way(place, git.resolve(place, "HEAD"), module.commit)
        _pin_one(self.root, self.worker, place, "submodule", blocked)

    def _save_what_is_left(self, superproject: Path, module: Submodule) -> None:
        """Move what a lost checkout has left to the trash: files, and the repository, whose HEAD git would move."""
        left = [(self.worktree, superproject, module.path)] if _has_files(superproject, module.path) else []
        own = Path(os.path.realpath(git.git_dir(superproject)))
        if os.path.lexists(own / "modules" / module.name / "HEAD"):
            # An agent can write the pointer of a submodule, which has other submodules in its git directory.
            tops = [Path(os.path.realpath(top)) for top in (git.git_dir(self.worktree), self.worktree)]
            left += [(top, own, f"modules/{module.name}") for top in tops if own.is_relative_to(top)][:1]
        if left:
            ref = trash.pin_commit(self.root, self.worker, "submodule", git.head(self.worktree))
            for top, place, name in left:
                trash.take_out(place, [name], trash.folder_of(self.root, ref), top=top)
            make_readable(trash.folder_of(self.root, ref), "modules")


def _has_any(worktree: Path) -> bool:
    """Whether `.gitmodules` exists. A link does not count: git does not follow it, and an agent may have made it."""
    try:
        return stat.S_ISREG(os.lstat(worktree / ".gitmodules").st_mode)
    except OSError:
        return False


def _problem(module: Submodule, done: Done | None) -> str:
    if done is None:
        return f"submodule {module.path} is missing: .gitmodules on the default branch does not have its URL. To use it, run `git submodule add URL {module.path}` in the source repository and commit the result"
    said = (done.stderr or done.stdout).strip()
    reason = said[max(0, said.find("fatal: ")) :]
    reason = reason.partition("\n")[0] if "fatal: " in said else said.rpartition("\n")[2]
    return (
        f"submodule {module.path} is missing: {reason}. "
        "Run `git submodule update --init` in the source repository, then `llmc up --detach` again"
    )


def _absolute(url: str, source: str) -> str:
    """The URL as absolute: a relative one starts at the superproject's."""
    if not url.startswith(("./", "../")):
        return url
    base, mark = source.rstrip("/"), "/"
    while url.startswith(("./", "../")):
        if url.startswith("../"):
            base, mark, _ = base.rpartition("/" if "/" in base else ":")
        url = url.partition("/")[2]
    return f"{base}{mark}{url}"


def _bring(near: Path, source: Path | str, commit: str) -> Done:
    """Fetch a submodule into llmc's own repository for it. Git allows the same URLs as for any submodule."""
    if not (near / "HEAD").exists():
        git.git(near.parent, "init", "--quiet", "--bare", "--template=", str(near))
        git.git(near, "config", "uploadpack.allowAnySHA1InWant", "true")
    env = {} if isinstance(source, Path) else {"GIT_PROTOCOL_FROM_USER": "0"}
    fetch = ["fetch", "--quiet", "--no-tags", "--no-auto-maintenance", "--", str(source)]
    done = Done([], 1, "", "")
    # A commit that is on no branch can be fetched by its id.
    for wanted in ("+refs/heads/*:refs/heads/*", f"+{commit}:refs/llmc/{commit}"):
        if git.has_commit(near, commit):
            return Done([], 0, "", "")
        done = git.git(near, *fetch, wanted, check=False, timeout_s=1800, env=env)
    return done


def _pins(superproject: Path, commit: str, module: Submodule) -> bool:
    """Whether this commit of the superproject has the submodule at `module.commit`."""
    rows = git.rows(git.git(superproject, "ls-tree", "-z", commit, "--", module.path).stdout)
    return [row.split()[2] for row in rows] == [module.commit]


def _urls(superproject: Path, *where: str) -> dict[str, str]:
    """The URLs of submodules by name, from the file or a commit."""
    flags = [*where, "-z", "--get-regexp", r"^submodule\..*\.url$"]
    rows = git.git(superproject, "config", *flags, check=False).stdout.split("\0")
    found = (row.partition("\n") for row in rows if row)
    return {key[len("submodule.") : -len(".url")]: url for key, _, url in found}


def _check_out(superproject: Path, module: Submodule, near: Path | None) -> Done:
    """Check out the commit that the superproject names, from the repository `near` on this machine, else its URL."""
    settings: list[str] = []
    if near is not None:
        from urllib.parse import quote  # slow to import, and only submodules need it

        # From a URL git copies the objects; from a path it would hard-link the user's.
        address = f"submodule.{module.name}.url=file://{quote(str(near))}"
        # With URL and `update` given, git writes neither to the settings, which are read-only for a contained worker.
        settings = ["-c", "protocol.file.allow=always", "-c", address]
        settings += ["-c", f"submodule.{module.name}.update=checkout"]
    command = ["submodule", "update", "--init", "--quiet", "--", module.path]
    return git.git(superproject, *settings, *command, check=False, timeout_s=1800)


def _is_checked_out(superproject: Path, path: str) -> bool:
    """Whether a submodule has its `.git`. No link is followed: an agent could lead to a repository of the user."""
    with contextlib.suppress(OSError), inside.folder_of(superproject, f"{path}/.git") as (folder, last):
        os.stat(last, dir_fd=folder)
        return True
    return False


def _has_files(superproject: Path, path: str) -> bool:
    """Whether the place of a submodule is a directory that is not empty."""
    with contextlib.suppress(OSError, StopIteration):
        _, folders, files = next(inside.walk(superproject, path))
        return bool(folders or files)
    return False


def _gitlinks(repo: Path) -> dict[str, str]:
    """The submodules in the index of a repository, with their commits."""
    try:
        is_any = indexes.may_name_repositories(git.git_dir(repo) / "index")
    except FileNotFoundError:
        return {}
    except OSError:
        is_any = True  # git says why it cannot be read
    rows = git.listed(repo, "ls-files", "--stage", "-z", timeout_s=300) if is_any else []
    found = (row.partition("\t") for row in rows)
    return {path: facts.split()[1] for facts, _, path in found if facts.startswith("160000 ")}


def _names(superproject: Path, *where: str) -> dict[str, str]:
    """The names of submodules by path, from the file or a commit."""
    flags = [*where, "-z", "--get-regexp", r"^submodule\..*\.path$"]
    rows = git.git(superproject, "config", *flags, check=False).stdout.split("\0")
    found = (row.partition("\n") for row in rows)
    names = {path: key[len("submodule.") : -len(".path")] for key, _, path in found if path}
    # git names a directory after the submodule; an absolute name could be any repository of the user.
    return {path: name for path, name in names.items() if _is_inside(name)}


def _listed(superproject: Path) -> list[Submodule]:
    """Submodules in .gitmodules that have a commit in the index."""
    names = _names(superproject, "--file", ".gitmodules")
    links = _gitlinks(superproject) if names else {}
    return [Submodule(names[path], path, commit) for path, commit in links.items() if path in names]


def _is_inside(name: str) -> bool:
    """Whether a directory with this name stays inside its parent directory."""
    return not name.startswith("/") and ".." not in name.split("/")


def _store(project: Project) -> Path | None:
    """The directory of a local source's submodule repositories; None for a URL."""
    source = Path(project.source)
    if not source.is_dir():
        return None
    return source / git.out(source, "rev-parse", "--git-common-dir") / "modules"


# Before a worktree gets another git directory, the repositories of its submodules move into their checkouts.
#
# Git keeps them in the worktree's git directory (`modules/`), and each checkout points there. A submodule with its
# repository in its own `.git` directory works too, whichever repository the worktree belongs to.

#: the name of a pointer while its repository moves; after a kill in between, it is found by this name
_MOVING = ".git.llmc-moving"
#: longer than any path
_MOST_POINTER = 8192


def embed(project: Project, record: WorkerRecord) -> None:
    """Move all submodule repositories into their checkouts; those without one go to the trash. Safe to repeat.

    No agent may be running in the worktree.
    """
    worktree = Path(record.worktree_path)
    git_dir = git.git_dir(worktree)
    if not os.path.lexists(git_dir / "modules"):
        return
    try:
        _embed_those_of(worktree, git_dir, checkout="", repository="")
        if any(files for _, _, files in inside.walk(git_dir, "modules")):
            ref = trash.pin_commit(project.root, record.name, "submodules", git.head(worktree))
            trash.take_out(git_dir, ["modules"], trash.folder_of(project.root, ref))
        else:
            remove_tree(git_dir / "modules")
    except OSError as error:
        raise explain(error, f"cannot move the submodules of {record.name}") from error


def _embed_those_of(worktree: Path, git_dir: Path, *, checkout: str, repository: str) -> None:
    """Move those of the worktree, or of a submodule in it; the innermost first, while the pointers are still right."""
    own = f"--git-dir={git_dir / repository}"
    rows = git.listed(worktree, own, "ls-files", "--stage", "-z", timeout_s=300)
    for path in [row.partition("\t")[2] for row in rows if row.startswith("160000 ")]:
        place = os.path.join(checkout, path)
        found = _pointed_to(worktree, git_dir, place)
        if found.startswith(os.path.join(repository, "modules/")) and (git_dir / found / "HEAD").exists():
            _embed_those_of(worktree, git_dir, checkout=place, repository=found)
            _move(worktree, git_dir, place, found)


def _pointed_to(worktree: Path, git_dir: Path, checkout: str) -> str:
    """The repository of a submodule, as a path from the git directory of the worktree; "" if there is none."""
    for name in (".git", _MOVING):
        with contextlib.suppress(OSError, ValueError):
            text = inside.read(worktree, f"{checkout}/{name}", _MOST_POINTER).decode()
            place = os.path.join(worktree, checkout, text.removeprefix("gitdir:").strip())
            return os.path.relpath(os.path.realpath(place), os.path.realpath(git_dir))
    return ""


def _move(worktree: Path, git_dir: Path, checkout: str, repository: str) -> None:
    config = git_dir / repository / "config"
    git.git(git_dir, "config", "--file", str(config), "--unset", "core.worktree", check=False)
    with (
        inside.folder_of(worktree, f"{checkout}/.git") as (folder, last),
        inside.folder_of(git_dir, repository) as (modules, name),
    ):
        with contextlib.suppress(FileNotFoundError):
            os.rename(last, _MOVING, src_dir_fd=folder, dst_dir_fd=folder)
        os.rename(name, last, src_dir_fd=modules, dst_dir_fd=folder)
        os.unlink(_MOVING, dir_fd=folder)
