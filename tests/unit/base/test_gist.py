"""What is reported about a failure: the command, and the end of its output, where the error is."""

import pytest

from llmc.base.errors import ToolFailed
from llmc.base.text import gist
from llmc.cli.output import print_error

UNITTEST = """======================================================================
ERROR: test_pay (tests.test_pay.PayTest.test_pay)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/home/ada/llmc/.worktrees/auto-1/tests/test_pay.py", line 4, in test_pay
    pay(0)
ValueError: nothing to pay

----------------------------------------------------------------------
Ran 1 test in 0.000s

FAILED (errors=1)
"""


def failed(output: str) -> ToolFailed:
    return ToolFailed(["make"], 2, output, message="adam: `make` failed with exit code 2, nothing landed")


def test_the_error_is_named_not_the_beginning_of_a_traceback() -> None:
    """Break: cut a text at its end, where a traceback names its error."""
    assert gist(failed(UNITTEST).message, 300) == (
        "adam: `make` failed with exit code 2, nothing landed: "
        "ValueError: nothing to pay | Ran 1 test in 0.000s | FAILED (errors=1)"
    )


@pytest.mark.parametrize("most", [20, 60, 100, 500])
def test_it_is_one_line_that_fits(most: int) -> None:
    for text in ("", "\n\n", "=====\n", "one", "a" * 900, f"{'a' * 900}\n{'b' * 900}", f"x\n{'y' * 900} end"):
        said = gist(text, most)
        assert len(said) <= most
        assert "\n" not in said
    assert gist("", most) == ""
    assert gist(f"x\n{'y' * 900} end", most).endswith("end"), "the end is kept"
    assert gist(gist(failed(UNITTEST).message)) == gist(failed(UNITTEST).message), "a short text stays"


def test_output_stands_apart_from_our_words(capsys: pytest.CaptureFixture[str]) -> None:
    """Break: print `FAILED (errors=1). The full output is in ...`, or our sentence before its first line."""
    error = failed(UNITTEST)
    print_error(error.message, "The full output is in logs/adam.log.", 1, False)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "llmc: adam: `make` failed with exit code 2, nothing landed:"
    assert lines[1].startswith("=====")
    assert lines[-2:] == ["FAILED (errors=1)", "The full output is in logs/adam.log."]
    print_error(failed("boom").message, "Look.", 1, False)
    assert (
        capsys.readouterr().err == "llmc: adam: `make` failed with exit code 2, nothing landed: boom. Look.\n"
    )
