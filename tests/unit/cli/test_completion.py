"""What a shell completes: every argument and option whose values are known."""

from collections.abc import Iterator

import click

from llmc.cli.app import cli
from tests.support.command_tree import context

#: parameters for text that the user writes
FREE = {
    *("text", "prompt", "message", "subject", "description", "title", "problem", "summary", "reason", "why"),
    *(
        "criteria",
        "constraints",
        "assumptions",
        "risks",
        "non_goals",
        "owner",
        "stakeholders",
        "tags",
        "kind",
    ),
    *("decisions", "evidence", "progress", "questions", "steps", "role_prompt", "label", "value"),
    *("reply_to", "reply_account", "reply_thread"),
    *("name", "branch", "model", "commits", "validate", "verify", "post_accept_command"),
    *("since", "until", "timeout", "idle_after", "source", "address", "allowed"),
}


def texts(command: click.Command, name: str = "") -> Iterator[tuple[str, str | None]]:
    """Each parameter that takes any text and completes nothing, with its command."""
    ctx = context(command)
    for param in command.params:
        is_text = type(param.type) is type(click.STRING) and not getattr(param, "is_flag", False)
        if is_text and param._custom_shell_complete is None:
            yield name, param.name
    if isinstance(command, click.Group):
        for inner in command.list_commands(ctx):
            found = command.get_command(ctx, inner)
            assert found is not None
            yield from texts(found, f"{name} {inner}".strip())


def test_what_has_known_values_is_completed() -> None:
    """Break: add an argument for an ID without `shell_complete`."""
    assert [(command, name) for command, name in texts(cli) if name not in FREE] == []
