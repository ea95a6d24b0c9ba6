"""Help texts: a group lists its commands with a whole sentence each."""

import click

#: longer than any sentence: click would cut it at 45 characters, and end it with dots
_WHOLE = 1000


class Group(click.Group):
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = [
            (name, found.get_short_help_str(_WHOLE))
            for name, found in commands.items()
            if found is not None and not found.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
