"""A drill, and its report. Pure data."""

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import asdict

from llmc.config.model import Sandbox

if TYPE_CHECKING:
    from llmc.rehearsal.drills.scratch import Scratch


class Kind(StrEnum):
    """Who recovers from the failure."""

    AUTO = "AUTO"
    AUTO_THEN_AI = "AUTO->AI"
    AI = "AI"
    HUMAN = "HUMAN"
    #: many faults of many kinds
    ANY = "any"


class Drill(Struct, frozen=True):
    """One failure: its cause, how soon it must be detected, and what must happen then."""

    name: str
    #: its row in the failure tables
    row: str
    fault: str
    #: how it is detected, and within how many seconds with the drill's short intervals; None: no limit
    detection: str
    bound_s: float | None
    recovery: str
    kind: Kind
    run: "Callable[[Scratch], None]"
    #: the kind in the table, if it differs, and why
    instead_of: Kind | None = None
    because: str = ""
    #: what its processes need: "small disk" or "no privileges"
    needs: str = ""


class Report(Struct, frozen=True):
    """The result of a drill."""

    drill: Drill
    detected_s: float | None = None
    recovered_s: float | None = None
    #: work that was lost, or landed twice; must be empty
    lost: list[str] = field(default_factory=list)
    #: what went wrong
    problems: list[str] = field(default_factory=list)
    #: other information
    notes: list[str] = field(default_factory=list)
    skipped: str = ""
    #: the scratch root, kept if something went wrong
    directory: str = ""

    @property
    def outcome(self) -> str:
        if self.skipped:
            return "skipped"
        return "failed" if self.problems or self.lost else "passed"

    def row_of_json(self) -> dict[str, Any]:
        known = ("name", "row", "fault", "kind", "detection", "recovery", "bound_s")
        drill = {key: getattr(self.drill, key) for key in known}
        return {**drill, **self.measured(), "outcome": self.outcome}

    def measured(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if key != "drill"}


class Terms(Struct, frozen=True):
    """What the user chose for a run of drills."""

    #: for `night`: the same seed causes the same faults, as far as timing allows
    seed: int = 1
    lasts_s: float = 240.0
    #: whether the agents and checks are contained
    sandbox: Sandbox = "auto"


class DrillFailed(Exception):
    """Something expected did not happen."""
