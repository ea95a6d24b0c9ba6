"""`llmc` inside a contained agent, which finds no root: the daemon runs the commands that agents may use."""

from llmc.api import agent_calls
from llmc.cli.output import say_lines


def dispatch(argv: list[str]) -> int | None:
    """Run `status`, `tasks list` and `tasks show`; None for any other command line, and if no contained agent calls."""
    try:
        given = agent_calls.ask(argv)
    except Exception as error:
        from llmc.cli.app import ended

        return ended(error, argv)
    if given is None:
        return None
    say_lines(given.out, nl=False)
    say_lines(given.err, err=True, nl=False)
    return given.code
