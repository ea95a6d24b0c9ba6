"""Sets up a Serena project per worktree: with one name for all, Serena would edit files of another worktree.

Serena keeps a project list in its own configuration, and a name in each project's file. Neither file is llmc's, so only
llmc's own line changes.
"""

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from llmc.base import inside
from llmc.base.errors import LlmcError
from llmc.base.files import edit_file, explain, read_whole
from llmc.base.locks import Rank, lock
from llmc.base.text import pattern
from llmc.repo import git
from llmc.repo.copied_files import exclude
from llmc.repo.project import Place, Project

_NAME = pattern(r"^project_name[ \t]*:[ \t]*(.*)$", re.MULTILINE)
_LIST = pattern(r"^projects[ \t]*:(?P<value>.*)$")
_ITEM = pattern(r"^[ \t]*-[ \t]+(?P<value>.*)$")
_FLOW_ITEM = pattern(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s,"'](?:[^,]*[^\s,])?)""")
#: as bytes of any encoding become text and bytes again
_ANY = ("utf-8", "surrogateescape")
_FILES = (".serena/project.local.yml", ".serena/project.yml")


def settle(project: Project, place: Place, worktree: Path) -> list[str]:
    """Set up the worker's project and register it with Serena; returns problems."""
    if not place.has_branch:
        return []  # no worker uses a slot
    # A tracked file must not change; Serena prefers the local file beside it.
    tracked = git.git(worktree, "ls-files", "--error-unmatch", "--", ".serena/project.yml", check=False).ok
    name = _FILES[0] if tracked else _FILES[1]
    target = worktree / name
    if target.parent.is_symlink() or target.is_symlink():
        return [f"{target} is a symbolic link, so llmc did not set up a Serena project for the worktree"]
    place_read = target
    try:
        have = inside.read_whole(worktree, name) if os.path.lexists(target) else b""
        place_read = Path(project.source) / _FILES[1]
        start = have or (b"" if tracked else read_whole(place_read))
    except OSError as error:
        why = error.strerror or error
        return [f"cannot read {place_read}, so llmc did not set up a Serena project for the worktree: {why}"]
    wanted = named(_text(start), _unique_name(project, place, worktree)).encode(*_ANY)
    exclude(project, [name])
    if have != wanted:
        try:
            inside.write(worktree, name, wanted)
        except OSError as error:
            raise explain(error, f"cannot write {target}") from error
    return _change_list(lambda found: found.with_path(str(worktree)))


def forget(worktree: Path) -> None:
    """Remove the project of a removed worktree from Serena's list."""
    if str(worktree) in _read(_config()):
        _change_list(lambda found: found.without_path(str(worktree)))


def named(text: str, name: str) -> str:
    """The project file with this name, otherwise unchanged."""
    line = f'project_name: "{name}"'
    if _NAME.search(text):
        return _NAME.sub(line, text, count=1)
    return f"{line}\n{text}"


def _unique_name(project: Project, place: Place, worktree: Path) -> str:
    """`{session_prefix}-{worker}`, with a suffix for the root if another project has that name."""
    name = str(project.session(place.name))
    listed = _read_list(_read(_config()))
    others = [path for path in (*(listed.paths if listed else ()), project.source) if path != str(worktree)]
    return f"{name}-{project.root.tmux_server[-8:]}" if name in _names_of(others) else name


def _names_of(paths: Iterable[str]) -> set[str]:
    found = set()
    for path in paths:
        texts = (_read(Path(path) / name) for name in _FILES)
        named = next((match for text in texts if (match := _NAME.search(text))), None)
        if named is not None:
            found.add(_scalar(named[1]))
    return found


def _config() -> Path:
    home = os.environ.get("SERENA_HOME") or "~/.serena"
    return Path(os.path.expanduser(home)) / "serena_config.yml"


def _read(path: Path) -> str:
    """A file to look at; "" if it cannot be read."""
    with contextlib.suppress(OSError):
        return _text(read_whole(path))
    return ""


def _text(data: bytes) -> str:
    return data.decode(*_ANY)


def _change_list(change: "Callable[[_Projects], _Projects]") -> list[str]:
    """Change Serena's project list; returns why it could not be changed."""
    path = _config()

    def edit(data: bytes) -> bytes:
        found = _read_list(_text(data))
        if found is None:
            raise LlmcError(f"`projects` in {path} is not a plain list; add the worktree by hand")
        return data if change(found) == found else change(found).text.encode(*_ANY)

    try:
        before = read_whole(path)
        if edit(before) == before:
            return []
        path.parent.mkdir(parents=True, exist_ok=True)
        with lock(path.with_name("llmc.lock"), Rank.SERENA):
            edit_file(path, edit)
    except LlmcError as error:
        return [f"cannot register the worktree with Serena: {error}"]
    except OSError as error:
        return [f"cannot register the worktree with Serena: cannot change {path}: {error.strerror or error}"]
    return []


class _Projects(Struct, frozen=True):
    """Serena's configuration, split around its project list."""

    before: tuple[str, ...] = ()
    head: str = "projects:"
    #: the lines of the list; comments among them stay
    items: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for line in self.items if (path := _path(line)))

    @property
    def text(self) -> str:
        head = self.head if self.paths else "projects: []"
        return "".join(f"{line}\n" for line in (*self.before, head, *self.items, *self.after))

    def with_path(self, path: str) -> "_Projects":
        if path in self.paths:
            return self
        last = next((line for line in reversed(self.items) if _path(line)), "")
        indent = last[: len(last) - len(last.lstrip())]
        end = "\r" if (last or self.head).endswith("\r") else ""
        line = f"{indent}- {json.dumps(path, ensure_ascii=False)}{end}"
        return replace(self, items=(*self.items, line))

    def without_path(self, path: str) -> "_Projects":
        kept = tuple(line for line in self.items if _path(line) != path)
        return replace(self, items=kept)


def _read_list(text: str) -> _Projects | None:
    """Parse the project list, empty if the file has none; None if the list cannot be changed line by line."""
    lines = text.removesuffix("\n").split("\n") if text else []
    at = next((number for number, line in enumerate(lines) if _LIST.match(line)), None)
    if at is None:
        return _Projects(tuple(lines))
    head = _LIST.match(lines[at])
    value = _without_comment(head["value"]) if head else ""
    end = at + 1
    while end < len(lines) and (_ITEM.match(lines[end]) or _is_aside(lines[end])):
        end += 1
    if lines[end : end + 1] and lines[end][0].isspace():
        return None  # an item of several lines
    while end > at + 1 and _is_aside(lines[end - 1]):
        end -= 1  # text after the last item belongs to the next key
    items, after = tuple(lines[at + 1 : end]), tuple(lines[end:])
    if value == "":
        return _Projects(tuple(lines[:at]), lines[at], items, after)
    if value in ("[]", "null", "~"):
        return _Projects(tuple(lines[:at]), items=items, after=after)
    flow = re.fullmatch(r"\[([^\[\]{}]*)\]", value)
    if flow is None or items:
        return None
    listed = tuple(f"- {one}" for one in _FLOW_ITEM.findall(flow[1]))
    return _Projects(tuple(lines[:at]), items=listed, after=after)


def _is_aside(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _path(line: str) -> str:
    """The path of an item; "" for a comment."""
    item = _ITEM.match(line)
    return _scalar(item["value"]) if item else ""


def _scalar(text: str) -> str:
    """A one-line YAML string without its quotes."""
    text = _without_comment(text)
    if text.startswith('"'):
        try:
            return str(json.loads(text))
        except ValueError:
            return text.strip('"')
    return text[1:-1].replace("''", "'") if text.startswith("'") else text


def _without_comment(text: str) -> str:
    quoted = re.match(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')""", text)
    return quoted[1] if quoted else re.split(r"(?:^|\s)#", text, maxsplit=1)[0].strip()
