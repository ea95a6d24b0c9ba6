"""The configuration: `llmc config`."""

import click

from llmc.api import settings
from llmc.api.roots import Project, Root
from llmc.base.errors import Exit
from llmc.cli.arguments import Group, complete_with, open_editor, root_of
from llmc.cli.output import (
    json_option,
    plain,
    print_json,
    say,
    say_lines,
    warn,
)
from llmc.config.load import advice, check_text, load_config, read_text


@click.group("config", cls=Group)
def config() -> None:
    """Get, set and check configuration

    \b
    Examples:
      llmc config get defaults.model
      llmc config set repo.validate "make check"
      llmc config edit
    """


def _keys(project: Project) -> dict[str, str]:
    from llmc.config.schema import reference

    of_workers = [
        (option.key.replace("<name>", name), option)
        for option in reference()
        if "<name>" in option.key
        for name in project.config.workers
    ]
    options = [*((option.key, option) for option in reference()), *of_workers]
    return {key: option.description for key, option in options if "<" not in key}


_key = complete_with(_keys)


@config.command("get")
@click.argument("key", required=False, shell_complete=_key)
@json_option
@click.pass_context
def get(ctx: click.Context, key: str | None, as_json: bool) -> None:
    """Print effective configuration values"""
    from llmc.config.edit import get_value
    from llmc.config.schema import plain, reference, to_toml

    config = load_config(root_of(ctx).config).shown()
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
@click.argument("key", shell_complete=_key)
@click.argument("value")
@click.pass_context
def set_(ctx: click.Context, key: str, value: str) -> None:
    """Set a configuration key

    Keeps comments and formatting. Rejects invalid values.
    """
    from llmc.config.edit import get_value
    from llmc.config.schema import to_toml

    root = root_of(ctx)
    config = settings.set_option(root, key, value).shown()
    say(f"{key} = {to_toml(get_value(config, key))}")
    _look_at_source(root, changed=key in _OF_SOURCE)


#: the keys for where work comes from and lands
_OF_SOURCE = ("repo.source", "repo.default_branch")


def _look_at_source(root: Root, *, changed: bool) -> None:
    if changed and (problem := settings.new_source_problem(root)):
        warn(problem)


@config.command("unset")
@click.argument("key", shell_complete=_key)
@click.pass_context
def unset(ctx: click.Context, key: str) -> None:
    """Remove a key to restore its default"""
    root = root_of(ctx)
    settings.unset_option(root, key)
    say(f"unset {key}")
    _look_at_source(root, changed=key in _OF_SOURCE)


@config.command("edit")
@click.pass_context
def edit(ctx: click.Context) -> None:
    """Edit config.toml in $EDITOR

    Saves config.toml only if the edited text is valid. If config.toml changed while you were editing, llmc merges those
    changes into your draft and asks you to check and save it again.
    """
    root = root_of(ctx)
    draft = settings.draft(root)
    open_editor(draft.path, "config.toml was not changed. Run `llmc config edit` to continue editing.")
    _look_at_source(root, changed=settings.save(root, draft))


@config.command("check")
@json_option
@click.pass_context
def check(ctx: click.Context, as_json: bool) -> int:
    """Check config.toml for errors and conflicts"""
    path = root_of(ctx).config
    config, problems = check_text(read_text(path), path.name, path.parent)
    warnings = advice(config) if config is not None else []
    if as_json:
        print_json({"ok": not problems, "problems": [*map(plain, problems)], "warnings": warnings})
    else:
        say_lines("\n".join(str(p) for p in problems) or f"{path} is valid")
        for text in warnings:
            warn(text)
    return Exit.FAILED if problems else Exit.DONE


@config.command("schema")
@json_option
def schema(as_json: bool) -> None:
    """List every key with its type, default and description

    With --json, prints a JSON schema.
    """
    from llmc.config.schema import json_schema, reference

    if as_json:
        print_json(json_schema())
        return
    for option in reference():
        say(f"{option.key} ({option.type}, default {option.default})")
        say(f"    {option.description}")
