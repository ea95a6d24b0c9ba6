"""How commands print: JSON for scripts, lines for people, one line for an error."""

import json
import os
import sys
from typing import Any

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))


def print_error(
    message: str, hint: str, exit_code: int, as_json: bool, details: dict[str, Any] | None = None
) -> None:
    """One line with what failed and the fix; with --json an object on standard output as well."""
    if as_json:
        print_json({"error": message, "hint": hint, "exit_code": int(exit_code), **(details or {})})
    separator = "" if not hint else " " if message.endswith((".", "!", "?")) else ". "
    click.echo(paint("llmc: ", "red", err=True) + f"{message}{separator}{hint}", err=True)


def paint(text: str, color: str, *, err: bool = False, bold: bool = False) -> str:
    """Colour on a terminal, unless NO_COLOR is set; "": the terminal's own."""
    stream = sys.stderr if err else sys.stdout
    if os.environ.get("NO_COLOR") or not stream.isatty():
        return text
    return click.style(text, fg=color or None, bold=bold)


def note(text: str) -> None:
    """Progress and advice go to standard error: standard output is the result."""
    click.echo(text, err=True)
