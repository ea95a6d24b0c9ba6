"""An order of a front end ends with an outcome, whatever its operation or its front end does."""

from llmc.api.orders import guarded
from llmc.api.said import BAD, GOOD, Said, Show
from llmc.base.errors import LlmcError


def test_a_front_end_that_has_gone_does_not_end_an_operation() -> None:
    """Break: pass `show` to the operation as it is: an accept would stop after its merge."""
    steps = []

    def gone(step: str) -> None:
        steps.append(step)
        raise RuntimeError("App is not running")

    def accept(show: Show) -> Said:
        show("validate")
        show("land")
        return Said("llmc accept w1 --yes", "landed", 1.0, GOOD)

    assert guarded("llmc accept w1 --yes", accept)(gone).outcome == "landed"
    assert steps == ["validate", "land"]


def test_an_error_is_an_outcome() -> None:
    def refused(show: Show) -> Said:
        raise LlmcError("no", hint="Wait.")

    said = guarded("llmc hold w1", refused)(lambda step: None)
    assert (said.outcome, said.tone) == ("no  Wait.  (exit 1)", BAD)
