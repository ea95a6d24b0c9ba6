"""What a contained program, an agent or a check of its work, sees of this machine and of the root.

Both see the worktree with its repository, the programs on PATH, what the repository's tool chains need (presets), and
the paths in `sandbox.read` and `sandbox.write`. An agent also sees its inbox and its home (sessions/containing.py).
"""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from glob import glob
from pathlib import Path

from llmc import launch
from llmc.base.files import private_dir, write_atomic
from llmc.base.rotation import private_opener
from llmc.config.model import PresetName
from llmc.repo import git, git_dirs, own_repos
from llmc.repo.project import Project
from llmc.sandbox import mount_points, presets, probe, rules, shown_programs, tool_settings
from llmc.sandbox.network import Network, refused
from llmc.sandbox.network import environment as environment_of
from llmc.sandbox.reaching import UPSTREAM_VARIABLES
from llmc.sandbox.rules import Mount, View

#: the key of the attention item about checks that run uncontained
ITEM = "uncontained:checks"
#: the variables that llmc sets for a check
_OF_CHECKS = ("LLMC_WORKER", "LLMC_SLOT")


def hold(
    project: Project, worktree: Path, command: str, env: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The command that runs a check contained, and its environment; [] and `env` itself if it is not contained."""
    wanted = project.config.checks
    if wanted == "off" or not probe.is_contained(wanted, "checks", "sandbox.checks"):
        _tell(project, uncontained=wanted != "off")
        return [], dict(env)
    _tell(project, uncontained=False)
    reached = network(project, str(project.root.slots / worktree.name))
    inside = {**_passed_on(project, env), **environment(project, worktree, env), **environment_of(reached)}
    argv = ["/bin/sh", "-c", command]
    spec = private_dir(project.root.slots) / f"{worktree.name}.launch.json"
    seen = view(project, worktree, inside, program=argv[0])
    sandbox = probe.sandbox(seen, network=reached, has_terminal=False)
    payload = {
        "argv": argv,
        "cwd": str(worktree),
        "env": inside,
        "sandbox": sandbox,
        "ends_with": os.getpid(),
    }
    with open(spec, "w", opener=private_opener) as file:  # the launcher reads and removes it at once
        json.dump(payload, file)
    return [sys.executable, "-I", "-S", launch.__file__, str(spec)], inside


def tell_refused(project: Project, worker: str, worktree: Path) -> None:
    """Record the hosts that a check could not connect to, in the event log (and so the digest) and the worker's log."""
    rows = refused(str(project.root.slots / worktree.name))
    if not rows:
        return
    with project.store.transaction() as tx:
        for one in rows:
            tx.emit("host_refused", worker=worker, reason=one.why, host=one.host, allow=one.allow)
    for one in rows:
        project.store.note(worker, f"a check could not connect to {one.host}: {one.why}")


def _tell(project: Project, *, uncontained: bool) -> None:
    """Raise or clear the attention item about checks that run uncontained because this machine cannot contain them."""
    if uncontained == (ITEM in project.store.read().attention):
        return
    with project.store.transaction() as tx:
        if not uncontained:
            tx.clear_item(ITEM)
            return
        if (problem := probe.problem()) is None:
            return  # fixed a moment ago
        about = {"kind": "uncontained_checks", "severity": "notice", "who": "checks"}
        tx.raise_item(ITEM, text=f"checks are not contained: {problem.text}", next="llmc doctor", **about)


def network(
    project: Project, files: str, *, endpoints: Iterable[str] = (), wake: str = "", worker: str = ""
) -> Network:
    """What a contained program may connect to: hosts that the user lists, and registries of the tool chains."""
    user = {**os.environ, **project.config.defaults.env}
    return Network(
        hosts=project.config.sandbox.hosts,
        endpoints=(*endpoints, *hosts(chosen_presets(project))),
        files=files,
        upstream={name: user[name] for name in UPSTREAM_VARIABLES if name in user},
        wake=wake,
        worker=worker,
    )


def view(
    project: Project,
    worktree: Path,
    env: Mapping[str, str],
    *,
    program: str,
    read: Iterable[str] = (),
    write: Iterable[str] = (),
    mounts: Iterable[Mount] = (),
) -> View:
    """The view of a contained program. `read`, `write` and `mounts`: what it sees in addition."""
    root, home = project.root.path, env.get("HOME", "")
    hidden = [place for place in (home, str(root), project.source) if os.path.isabs(place)]
    writable, fixed = _repository(root, worktree)
    named = project.config.sandbox
    opened = [*shown_programs.places(env.get("PATH", ""), program, hidden), *_existing(named.read)]
    ours = (
        *map(Mount, [*opened, *fixed, *read]),
        *_pointer(worktree),
        *(Mount(path, True) for path in [str(worktree), *writable, *_existing(named.write), *write]),
        *_of_tools(project, worktree, env, hidden),
        *mounts,
    )
    mount_points.clear(ours, str(root))
    return View(
        (*probe.system_mounts(), *ours),
        empty=(
            *rules.SCRATCH,
            *([home] if os.path.isabs(home) and home != "/" else []),
            *mount_points.covered(hidden),
        ),
        links=probe.system_links(),
    )


def _repository(root: Path, worktree: Path) -> tuple[list[str], list[str]]:
    """The writable and the read-only paths of a worktree's repository; a shared clone is read-only as a whole."""
    own = git_dirs.own_repo(worktree)
    return ([], [str(root / ".git")]) if own is None else own_repos.for_agents(own, root)


def _pointer(worktree: Path) -> list[Mount]:
    own = git_dirs.own_repo(worktree)
    return [Mount(f"{worktree}/.git")] if own is None else own_repos.pointer(worktree, own)


def _existing(places: Iterable[str]) -> list[str]:
    return [place for place in map(os.path.expanduser, places) if os.path.exists(place)]


def environment(project: Project, worktree: Path, env: Mapping[str, str]) -> dict[str, str]:
    """The user's variables for the repository's tool chains, and the variables that name their caches in the box."""
    found = _needs(project, worktree, env).caches
    named = {name: place for name, place in found.items() if not os.path.isabs(name)}
    return presets.passed_on(env, chosen_presets(project)) | named


def _passed_on(project: Project, env: Mapping[str, str]) -> dict[str, str]:
    """The other variables that a check sees: the usual ones, `sandbox.env`, and `defaults.env` without secrets."""
    named = [name for name in project.config.defaults.env if not presets.is_secret(name)]
    return rules.passed_on(env, (*named, *_OF_CHECKS, *project.config.sandbox.env))


def _needs(project: Project, worktree: Path, env: Mapping[str, str]) -> presets.Needs:
    return presets.needs(chosen_presets(project), str(project.root.cache(worktree)), env)


def _of_tools(
    project: Project, worktree: Path, env: Mapping[str, str], hidden: Iterable[str]
) -> Iterable[Mount]:
    needs = _needs(project, worktree, env)
    for name, place in needs.caches.items():
        private_dir(Path(place))
        yield Mount(name, True, place) if os.path.isabs(name) else Mount(place, True)
    texts = _settings(needs)
    for path, text in texts.items():
        shown = private_dir(project.root.caches / ".settings") / path.replace("/", "_")
        data = text.encode()
        if not shown.exists() or shown.read_bytes() != data:
            write_atomic(shown, data)
        yield Mount(needs.settings[path], False, str(shown))
    texts_too = [*texts.values(), *(f"{name}={value}" for name, value in env.items())]
    named = [*(path for one in needs.programs for path in glob(one)), *presets.local_places(texts_too)]
    for place in map(os.path.normpath, named):
        if (
            os.path.exists(place)
            and not shown_programs.is_seen(place, hidden)
            and not rules.contains_any(place, hidden)
        ):
            yield Mount(place)


def _settings(needs: presets.Needs) -> dict[str, str]:
    """The user's existing tool settings by path, as contained programs see them."""
    found = {}
    for path in needs.settings:
        try:
            found[path] = tool_settings.shown(path, Path(path).read_text())
        except (OSError, UnicodeDecodeError):
            continue
    return found


def chosen_presets(project: Project) -> list[PresetName]:
    """The presets in `sandbox.presets`, with "auto" replaced by those found."""
    named = project.config.sandbox.presets
    found = found_presets(project) if "auto" in named else ()
    return list(dict.fromkeys([*found, *(name for name in named if name != "auto")]))


def found_presets(project: Project) -> tuple[PresetName, ...]:
    """The presets of the repository's tool chains, found by the files of the latest commit."""
    root = project.root.path
    commit = git.resolve(root, project.base)
    return _presets_at(root, commit) if commit else ()


@lru_cache(maxsize=8)
def _presets_at(root: Path, commit: str) -> tuple[PresetName, ...]:
    listing = ["ls-tree", "-r", "-z", "--name-only", commit]
    return presets.found(git.listed(root, *listing, timeout_s=300, most_bytes=git.MOST_OF_BASE))


def hosts(names: Sequence[PresetName]) -> list[str]:
    """The hosts that these tool chains download from, including those in the user's settings."""
    return presets.hosts(names, _settings(presets.needs(names, "", os.environ)).values())
