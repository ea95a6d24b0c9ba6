"""The hook inbox: one file per event, written by the sender, read here in order. Reading needs no lock."""

import contextlib
import os
from typing import Any

import msgspec

from llmc.base.files import read_given
from llmc.base.text import pattern
from llmc.config.paths import Root
from llmc.records.hook_events import HookEvent, Malformed

#: the names hook_client.py gives: time, then pid; other files are not read or removed
_EVENT = pattern(r"[0-9]{1,20}-[0-9]{1,20}\.json")


#: maximum size of an event; the client's own payloads are far smaller
MOST_BYTES = 16 << 20


class _Envelope(msgspec.Struct):
    worker: str
    instance: str
    payload: Any


def pending_ids(root: Root, worker: str) -> list[str]:
    """The ids of pending events, oldest first."""
    try:
        names = os.listdir(root.inbox / worker)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(name for name in names if _EVENT.fullmatch(name))


def read(root: Root, worker: str) -> list[HookEvent | Malformed]:
    """Pending events, in order."""
    found = (load(root, worker, event_id) for event_id in pending_ids(root, worker))
    return [event for event in found if event is not None]


def forget(root: Root, worker: str, ids: list[str]) -> None:
    for event_id in ids:
        # A file that cannot be removed does no harm: its id stays among the applied ones.
        with contextlib.suppress(OSError):
            (root.inbox / worker / event_id).unlink()


def load(root: Root, worker: str, event_id: str) -> HookEvent | Malformed | None:
    """One event; None if it was applied and removed since it was listed."""
    path = root.inbox / worker / event_id
    try:
        envelope = msgspec.json.decode(read_given(path, MOST_BYTES), type=_Envelope)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError, OSError) as error:  # msgspec's own errors are ValueErrors
        return Malformed(
            id=path.name, problem=error.strerror or str(error) if isinstance(error, OSError) else str(error)
        )
    if not isinstance(envelope.payload, dict):
        return Malformed(id=path.name, problem="the payload is not a JSON object")
    return HookEvent(id=path.name, worker=worker, instance=envelope.instance, payload=envelope.payload)
