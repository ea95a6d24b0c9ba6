"""What auto mode did, as the event log tells it: attempts at tasks, landed commits, runs, parks. Pure data."""

import math
from enum import StrEnum

from msgspec import Struct, field

from llmc.base.names import TaskKey

Span = tuple[float, float]


class End(StrEnum):
    """What became of an attempt."""

    ACCEPTED = "accepted"
    #: it landed, and was taken back with `llmc undo`
    UNDONE = "undone"
    FAILED = "failed"
    #: given back, and nothing counts against the task
    RELEASED = "released"
    #: over its budget
    PARKED = "parked"
    #: somebody is at it
    OPEN = "open"


class RunEnd(StrEnum):
    """How a run of auto mode ended."""

    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"
    #: without a word: killed, or the machine went down
    KILLED = "killed"


class Spend(Struct, frozen=True):
    """Tokens, and what they cost as far as prices are known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    #: None: no price is known for any of them
    cost: float | None = None
    #: how many of the tokens, cache reads left out, have no price
    unpriced_tokens: int = 0

    def __add__(self, other: "Spend") -> "Spend":
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Spend(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_creation_input_tokens + other.cache_creation_input_tokens,
            self.cache_read_input_tokens + other.cache_read_input_tokens,
            math.fsum(costs) if costs else None,
            self.unpriced_tokens + other.unpriced_tokens,
        )

    @property
    def tokens(self) -> int:
        """All but the cache reads, as `llmc usage` counts."""
        return self.input_tokens + self.output_tokens + self.cache_creation_input_tokens


class Attempt(Struct):
    """One worker at one task, from the claim to its end."""

    task: TaskKey
    worker: str = ""
    claim: str = ""
    subject: str = ""
    #: None: before the log begins
    began: float | None = None
    ended: float | None = None
    end: End = End.OPEN
    cause: str = ""
    reason: str = ""
    #: where unfinished work is pinned
    ref: str = ""
    commit: str = ""
    #: which failure of the task it was, as the log counts
    number: int | None = None
    #: `quarantined` or `parked`, where the task waits for a person since
    hold: str = ""
    conflicts: int = 0
    sent_back: int = 0
    spend: Spend = Spend()


class Landing(Struct):
    """A commit that landed without a task: a person's own accept."""

    commit: str
    worker: str
    prompt: str
    at: float
    undone: bool = False


class Run(Struct):
    began: float | None
    ended: float | None = None
    how: RunEnd = RunEnd.RUNNING
    reason: str = ""
    cause: str = ""
    worker: str = ""
    task: str = ""


class Park(Struct):
    cause: str
    began: float
    #: until when it was to be at the latest; the last of several, where a probe failed
    until: float | None = None
    ended: float | None = None


class Interruption(Struct, frozen=True):
    """Something broke the night, or put it right again."""

    at_unix: float
    #: one sentence, with the cause
    text: str


class PostAccept(Struct):
    at: float
    failed: bool
    elapsed_s: float


class History(Struct):
    """All of the log, in order of what happened."""

    attempts: list[Attempt] = field(default_factory=list)
    landings: list[Landing] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    parks: list[Park] = field(default_factory=list)
    dirty: list[Span] = field(default_factory=list)
    #: what the supervisor found and did
    interruptions: list[Interruption] = field(default_factory=list)
    post_accepts: list[PostAccept] = field(default_factory=list)
    #: by commit: when it was taken back
    undone: dict[str, float] = field(default_factory=dict)
    #: tokens that belong to no task, and when they were used
    other_spend: list[tuple[float, Spend]] = field(default_factory=list)
    #: tasks that wait for a person as far as the log knows: why, and since when
    holds: dict[TaskKey, tuple[str, float]] = field(default_factory=dict)
    subjects: dict[TaskKey, str] = field(default_factory=dict)
    #: time of the last row
    last: float = 0.0
