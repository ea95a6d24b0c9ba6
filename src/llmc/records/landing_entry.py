"""A row in the ledger of landings that the machines of a fleet share. Pure data."""

from msgspec import Struct

from llmc.base.names import TaskKey


class Entry(Struct, frozen=True):
    """A commit that may land, written before it is pushed."""

    commit: str
    worker: str
    #: None for work without a task: no other node can hold it
    task: TaskKey | None = None
    #: of the claim: a later holder of the task has a higher one
    token: int = 0
    prompt: str = ""
    #: the commit that this one reverts
    reverts: str = ""
    #: by the ledger's clock, which sets it
    at_unix: float = 0.0
