"""llmc config"""

import os
import shlex
import subprocess

import click

from llmc.api.roots import name_old_tasks
from llmc.base.errors import Exit, UsageError
from llmc.cli.arguments import Group, root_of
from llmc.cli.output import json_option, note, paint, print_json, say, say_lines
from llmc.config.load import advice, check_text, load_config, read_text, unusable


@click.group("config", cls=Group)
def config() -> None:
    """Read, change and check the configuration.

    \b
    Examples:
      llmc config get defaults.model
      llmc config set repo.validate "make check"
      llmc config edit
    """


@config.command("get")
@click.argument("key", required=False)
@json_option
@click.pass_context
def get(ctx: click.Context, key: str | None, as_json: bool) -> None:
    """Print the value in force of a key, or all of them."""
    from llmc.config.edit import get_value
    from llmc.config.schema import plain, reference, to_toml

    config = load_config(root_of(ctx).config)
    if key:
        value = plain(get_value(config, key))
        print_json(value) if as_json else say_lines(value if isinstance(value, str) else to_toml(value))
        return
    keys = [option.key for option in reference() if "<" not in option.key]
    values = {name: get_value(config, name) for name in keys}
    if as_json:
        print_json(values)
        return
    for name, value in values.items():
        say(f"{name} = {to_toml(value)}")


@config.command("set")
@click.argument("key")
@click.argument("value")
@click.pass_context
def set_(ctx: click.Context, key: str, value: str) -> None:
    """Change one key; comments and layout stay. A value that does not fit is refused, and nothing is written."""
    from llmc.config.edit import get_value, set_value
    from llmc.config.schema import to_toml

    name_old_tasks(root_of(ctx))
    config = set_value(root_of(ctx).config, key, value)
    say(f"{key} = {to_toml(get_value(config, key))}")


@config.command("unset")
@click.argument("key")
@click.pass_context
def unset(ctx: click.Context, key: str) -> None:
    """Remove one key, so that its default is in force."""
    from llmc.config.edit import unset_value

    name_old_tasks(root_of(ctx))
    unset_value(root_of(ctx).config, key)
    say(f"{key} is unset")


@config.command("edit")
@click.pass_context
def edit(ctx: click.Context) -> None:
    """Open config.toml in $EDITOR; what you saved is taken only when it is valid."""
    name_old_tasks(root_of(ctx))
    path = root_of(ctx).config
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    draft = path.with_name("config.edit.toml")
    if not draft.exists():
        draft.write_text(read_text(path))
    done = subprocess.run([*shlex.split(editor), str(draft)])
    if done.returncode:
        raise UsageError(
            f"{editor} ended with {done.returncode}, nothing was changed", hint=f"Your text is in {draft}."
        )
    text = draft.read_text()
    _, problems = check_text(text, draft.name)
    if problems:
        error = unusable(draft, problems)
        error.hint = "config.toml is unchanged; run `llmc config edit` again to go on where you were."
        raise error
    from llmc.base.files import write_atomic

    write_atomic(path, text.encode())
    draft.unlink()


@config.command("check")
@json_option
@click.pass_context
def check(ctx: click.Context, as_json: bool) -> int:
    """List everything that is wrong with config.toml, at once, and what does not go well together."""
    path = root_of(ctx).config
    config, problems = check_text(read_text(path), path.name)
    warnings = advice(config) if config is not None else []
    if as_json:
        rows = [{"file": p.file, "key": p.key, "line": p.line, "message": p.message} for p in problems]
        print_json({"ok": not problems, "problems": rows, "warnings": warnings})
    else:
        say_lines("\n".join(str(p) for p in problems) or f"{path} is fine")
        for text in warnings:
            note(paint("note: ", "yellow", err=True) + text)
    return Exit.FAILED if problems else Exit.DONE


@config.command("schema")
@json_option
def schema(as_json: bool) -> None:
    """Print every key with its type, default and meaning; with --json a JSON schema."""
    from llmc.config.schema import json_schema, reference

    if as_json:
        print_json(json_schema())
        return
    for option in reference():
        say(f"{option.key} ({option.type}, default {option.default})")
        say(f"    {option.description}")
