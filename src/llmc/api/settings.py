"""Changing config.toml: an option, or the whole file in an editor. Every change holds the root's lock."""

import contextlib
import tomllib
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from llmc.base.errors import LlmcError, Refused
from llmc.base.files import write_atomic
from llmc.base.text import some_files
from llmc.config import edit
from llmc.config.load import check_bytes, read_bytes, unusable
from llmc.config.model import Config
from llmc.config.paths import Root
from llmc.config.toml_text import differences
from llmc.records.store import Store
from llmc.repo import git
from llmc.repo.project import open_project

#: the highest exit code of `git merge-file` that counts conflicts
_MOST_CONFLICTS = 127


class Draft(Struct, frozen=True):
    """A copy of config.toml that the user edits; kept until it is saved."""

    path: Path
    #: config.toml when it was copied; empty if an older llmc copied it
    base: bytes


def set_option(root: Root, key: str, value: str) -> Config:
    with _changing(root):
        return edit.set_value(root.config, key, value)


def unset_option(root: Root, key: str) -> Config:
    with _changing(root):
        return edit.unset_value(root.config, key)


def draft(root: Root) -> Draft:
    """The draft that was not saved yet; without one, or if nothing was changed in it, a new copy."""
    path, copied = _drafts(root)
    base = copied.read_bytes() if copied.exists() else b""
    if not path.exists() or path.read_bytes() == base:
        base = read_bytes(root.config)
        write_atomic(copied, base)
        write_atomic(path, base)
    return Draft(path, base)


def save(root: Root, changed: Draft) -> bool:
    """Replace config.toml with a valid draft, unless it has changed since; returns whether the source is another one."""
    data = changed.path.read_bytes()
    after, problems = check_bytes(data, changed.path.name, root.path)
    if problems:
        error = unusable(changed.path, problems)
        error.hint = "config.toml was not changed. Run `llmc config edit` to continue editing."
        raise error
    with _changing(root):
        now = root.config.read_bytes() if root.config.exists() else changed.base
        if data == changed.base:
            after = None
        elif now == changed.base:
            edit.write(root.config, data.decode())
        else:
            raise _outdated(root, changed, now)
    for path in _drafts(root):
        path.unlink(missing_ok=True)
    before = check_bytes(now, root.config.name, root.path)[0]
    return after is not None and _source(before) != _source(after)


def _drafts(root: Root) -> tuple[Path, Path]:
    """The draft, and config.toml as it was copied."""
    return root.config.with_name("config.edit.toml"), root.config.with_name("config.edit.base.toml")


@contextlib.contextmanager
def _changing(root: Root) -> Iterator[None]:
    Store(root).refuse_elsewhere()
    name_old_tasks(root)
    with edit.locked(root):
        yield


def _outdated(root: Root, changed: Draft, now: bytes) -> Refused:
    """Bring what changed in config.toml into the draft, for the user to check and to save."""
    path, copied = _drafts(root)
    write_atomic(copied, changed.base)
    labels = [word for name in ("your draft", "before", "config.toml") for word in ("-L", name)]
    merge = ["merge-file", "-p", *labels, str(path), str(copied), str(root.config)]
    done = git.git(root.path, *merge, check=False)
    is_merged = 0 <= done.returncode <= _MOST_CONFLICTS
    # The draft first: with the new copy alone, the old draft would take back what changed.
    if is_merged:
        write_atomic(path, done.stdout.encode("utf-8", "surrogateescape"))
    write_atomic(copied, now)
    keys = some_files(_changed_keys(changed.base, now))
    if not is_merged:
        to_do = "Run `llmc config edit` to replace config.toml with your draft."
    elif done.returncode:
        to_do = "Your draft has these changes now. Run `llmc config edit` to resolve the conflicts."
    else:
        to_do = "Your draft has these changes now. Run `llmc config edit` to check and save it."
    what = f": {keys}" if keys else ""
    return Refused(
        f"config.toml was not saved because it has changed since you began to edit{what}", hint=to_do
    )


def _changed_keys(before: bytes, after: bytes) -> list[str]:
    """No keys if one of them is not TOML."""
    try:
        return differences(tomllib.loads(before.decode()), tomllib.loads(after.decode()))
    except (ValueError, RecursionError):
        return []


def _source(config: Config | None) -> tuple[str, str] | None:
    return None if config is None else (config.repo.source, config.repo.default_branch)


def name_old_tasks(root: Root) -> None:
    """Before the configuration changes: assign rows of an older llmc to the task list that is configured now."""
    if not root.tasks_ledger.exists():
        return
    from llmc.tasks.source import source_of

    with contextlib.suppress(LlmcError, OSError):
        source_of(open_project(str(root.path))).books()


def new_source_problem(root: Root) -> str:
    """After a change of the configuration: fetch from the source; returns why it is missing, and the fix."""
    from llmc.repo import provision, sources  # few commands change the configuration

    try:
        project = open_project(str(root.path))
        if missing := sources.look(project):
            raise missing
        provision.refresh_base(project)
    except sources.NoSource as missing:
        return f"{missing.message}. {missing.hint}"
    except LlmcError:
        return ""  # the next command that fetches says why
    return ""
