"""Hook events as clients sent them to an inbox; agents/kinds.py interprets them. Pure."""

from typing import Any

import msgspec

from llmc.base import given

MOST_WORD = 1000


class HookEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the inbox; `id` is its file name, which gives the order."""

    id: str
    worker: str
    instance: str
    payload: dict[str, Any]

    @property
    def name(self) -> str:
        return self.word("hook_event_name")

    @property
    def at_unix(self) -> float:
        return _sent_unix(self.id)

    def text(self, key: str) -> str:
        return given.text(self.payload.get(key))

    def word(self, key: str) -> str:
        """A name, id or reason, cut to MOST_WORD because it may be stored; the client's own are far shorter."""
        return self.text(key)[:MOST_WORD]


class Malformed(msgspec.Struct, frozen=True, kw_only=True):
    """An inbox file that is not an event, or cannot be read."""

    id: str
    problem: str

    @property
    def at_unix(self) -> float:
        return _sent_unix(self.id)


def _sent_unix(event_id: str) -> float:
    """When the sender started, from the name of its file."""
    return int(event_id.partition("-")[0]) / 1e9
