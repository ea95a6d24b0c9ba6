"""The hook inbox: one file per event, written by the sender, read here in order. Reading needs no lock.

An agent can write anything here, including files that no sender makes. No content and no amount of it stops the reader.
The directory names the worker, whatever a file says.
"""

import contextlib
import os
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import msgspec

from llmc.base import given
from llmc.base.files import read_given, remove_tree
from llmc.base.text import pattern
from llmc.config.paths import Root
from llmc.records.hook_events import HookEvent, Malformed

#: a request of a contained agent, and the answer (sessions/requests.py)
ASKED, ANSWERED = ".ask", ".answer"
#: the names hook_client.py gives: time, then pid; other files are not read or removed
_EVENT = pattern(r"[0-9]{1,20}-[0-9]{1,20}\.json")
_REQUEST = pattern(r"[0-9]{1,20}-[0-9]{1,20}\.ask")
#: every name that senders use; a file whose name starts with a dot is being written
_OURS = pattern(r"(\.|\.tmp-)?[0-9]{1,20}-[0-9]{1,20}\.(json|ask|answer)(\.[0-9]+\.[0-9a-f]+\.tmp)?")

#: maximum size of an event; the client's own payloads are far smaller
MOST_BYTES = 8 << 20
#: how much is read at once; the rest comes next. In memory it may take many times as much
MOST_EVENTS = 1000
MOST_BYTES_AT_ONCE = 16 << 20
#: how many files are listed; no agent has this many events waiting
MOST_FILES = 20_000


class _Envelope(msgspec.Struct):
    worker: str
    instance: str
    payload: Any


def pending_ids(root: Root, worker: str) -> list[str]:
    """The ids of pending events, oldest first; no more than are read at once."""
    sizes = {entry.name: _size(entry) for entry in _entries(root, worker) if _EVENT.fullmatch(entry.name)}
    ids = sorted(sizes)[:MOST_EVENTS]
    before = accumulate((sizes[event_id] for event_id in ids), initial=0)
    return [event_id for event_id, size in zip(ids, before, strict=False) if size < MOST_BYTES_AT_ONCE]


def _size(entry: "os.DirEntry[str]") -> int:
    """How many bytes of a file are read; 0 if it is gone, because it was applied since."""
    try:
        return min(entry.stat(follow_symlinks=False).st_size, MOST_BYTES)
    except OSError:
        return 0


def requests(root: Root, worker: str) -> list[str]:
    """The names of pending requests, oldest first."""
    entries = (entry for entry in _entries(root, worker) if _REQUEST.fullmatch(entry.name))
    return sorted(entry.name for entry in entries if _is_file(entry))


def others(root: Root, worker: str) -> list[str]:
    """The names of files that no sender makes; of all files, if there are more than senders make."""
    found = _entries(root, worker)
    if len(found) == MOST_FILES:
        return [entry.name for entry in found]
    return [entry.name for entry in found if not _OURS.fullmatch(entry.name) or not _is_file(entry)]


def _is_file(entry: "os.DirEntry[str]") -> bool:
    return entry.is_file(follow_symlinks=False)


def _entries(root: Root, worker: str) -> "list[os.DirEntry[str]]":
    folder = root.inbox / worker
    try:
        return _scan(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except PermissionError:  # an agent can change the mode of its inbox
        os.chmod(folder, 0o700)
        return _scan(folder)


def _scan(folder: Path) -> "list[os.DirEntry[str]]":
    with os.scandir(folder) as entries:
        return list(islice(entries, MOST_FILES))


def read(root: Root, worker: str) -> list[HookEvent | Malformed]:
    """Pending events, in order."""
    found = (load(root, worker, event_id) for event_id in pending_ids(root, worker))
    return [event for event in found if event is not None]


def forget(root: Root, worker: str, ids: list[str]) -> None:
    for event_id in ids:
        # What cannot be removed does no harm: its id stays among the applied ones.
        path = root.inbox / worker / event_id
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def clear(root: Root, worker: str) -> None:
    """Before a launch: remove what an earlier agent left, except its events."""
    os.chmod(root.inbox / worker, 0o700)  # an agent can change the mode of its inbox
    with os.scandir(root.inbox / worker) as entries:
        left = [entry for entry in entries if not _EVENT.fullmatch(entry.name) or not _is_file(entry)]
    for entry in left:
        with contextlib.suppress(OSError):
            remove_tree(Path(entry.path))


def _decoded(data: bytes) -> _Envelope:
    """The envelope. msgspec is fast, but refuses half of a surrogate pair, which clients write as an escape."""
    try:
        return msgspec.json.decode(data, type=_Envelope)
    except msgspec.ValidationError:
        raise
    except ValueError:
        return msgspec.convert(given.parse(data), type=_Envelope)


def load(root: Root, worker: str, event_id: str) -> HookEvent | Malformed | None:
    """One event; None if it was applied and removed since it was listed."""
    path = root.inbox / worker / event_id
    try:
        envelope = _decoded(read_given(path, MOST_BYTES))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError, OSError) as error:  # msgspec's own errors are ValueErrors
        return Malformed(
            id=path.name, problem=error.strerror or str(error) if isinstance(error, OSError) else str(error)
        )
    if not isinstance(envelope.payload, dict):
        return Malformed(id=path.name, problem="the payload is not a JSON object")
    if envelope.worker != worker:
        return Malformed(id=path.name, problem=f"the event names {envelope.worker[:80]}, not {worker}")
    return HookEvent(id=path.name, worker=worker, instance=envelope.instance, payload=envelope.payload)
