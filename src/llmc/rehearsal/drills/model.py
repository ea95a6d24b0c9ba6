"""What a drill is, and what was seen of it. Pure data."""

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import asdict

if TYPE_CHECKING:
    from llmc.rehearsal.drills.scratch import Scratch


class Kind(StrEnum):
    """Who makes it good."""

    AUTO = "AUTO"
    AUTO_THEN_AI = "AUTO->AI"
    AI = "AI"
    HUMAN = "HUMAN"
    #: many faults of many kinds
    ANY = "any"


class Drill(Struct, frozen=True):
    """One failure: how it is made, who should notice how soon, and what should happen then."""

    name: str
    #: its row in the tables of failures
    row: str
    fault: str
    #: how it is noticed, and within how many seconds with the drill's own short intervals; None: it cannot be
    detection: str
    bound_s: float | None
    recovery: str
    kind: Kind
    run: "Callable[[Scratch], None]"
    #: the kind that its row says, where it is another, and why
    instead_of: Kind | None = None
    because: str = ""
    #: what its processes need: "small disk" or "no privileges"
    needs: str = ""


class Report(Struct, frozen=True):
    """What was seen."""

    name: str
    row: str
    fault: str
    kind: str
    detection: str
    recovery: str
    detected_s: float | None = None
    bound_s: float | None = None
    recovered_s: float | None = None
    #: work that cannot be found any more, or that landed twice; must be empty
    lost: list[str] = field(default_factory=list)
    #: what went otherwise than it should
    problems: list[str] = field(default_factory=list)
    #: what else there is to tell
    notes: list[str] = field(default_factory=list)
    skipped: str = ""
    #: the scratch root, kept where something went wrong
    directory: str = ""

    @property
    def outcome(self) -> str:
        if self.skipped:
            return "skipped"
        return "failed" if self.problems or self.lost else "passed"

    def row_of_json(self) -> dict[str, Any]:
        return {**asdict(self), "outcome": self.outcome}


class Chance(Struct, frozen=True):
    """What a drill with dice is given: the same seed makes the same faults, as far as a machine can."""

    seed: int = 1
    lasts_s: float = 240.0


class DrillFailed(Exception):
    """Something did not happen that should have."""
