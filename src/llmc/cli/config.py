"""The configuration: `llmc config`."""

import os
import shlex
import subprocess

import click

from llmc.api.roots import Project, Root, name_old_tasks, new_source_problem
from llmc.base.errors import Exit, UsageError
from llmc.cli.arguments import Group, complete_with, root_of
from llmc.cli.output import (
    json_option,
    plain,
    print_json,
    say,
    say_lines,
    warn,
)
from llmc.config.load import advice, check_text, load_config, read_text, unusable
from llmc.config.model import Config


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
    from llmc.config.edit import get_value, set_value
    from llmc.config.schema import to_toml

    name_old_tasks(root_of(ctx))
    config = set_value(root_of(ctx).config, key, value).shown()
    say(f"{key} = {to_toml(get_value(config, key))}")
    if key in _OF_SOURCE:
        _look_at_source(root_of(ctx))


#: the keys for where work comes from and lands
_OF_SOURCE = ("repo.source", "repo.default_branch")


def _look_at_source(root: Root) -> None:
    if problem := new_source_problem(root):
        warn(problem)


@config.command("unset")
@click.argument("key", shell_complete=_key)
@click.pass_context
def unset(ctx: click.Context, key: str) -> None:
    """Remove a key to restore its default"""
    from llmc.config.edit import unset_value

    name_old_tasks(root_of(ctx))
    unset_value(root_of(ctx).config, key)
    say(f"unset {key}")
    if key in _OF_SOURCE:
        _look_at_source(root_of(ctx))


@config.command("edit")
@click.pass_context
def edit(ctx: click.Context) -> None:
    """Edit config.toml in $EDITOR

    Saves config.toml only if the edited text is valid.
    """
    name_old_tasks(root_of(ctx))
    path = root_of(ctx).config
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    draft = path.with_name("config.edit.toml")
    if not draft.exists():
        draft.write_text(read_text(path))
    done = subprocess.run([*shlex.split(editor), str(draft)])
    if done.returncode:
        raise UsageError(
            f"{editor} exited with code {done.returncode}; config.toml was not changed",
            hint=f"Run `llmc config edit` to continue editing {draft}.",
        )
    text = draft.read_text()
    before = check_text(read_text(path), path.name, path.parent)[0] if path.exists() else None
    after, problems = check_text(text, draft.name, path.parent)
    if problems:
        error = unusable(draft, problems)
        error.hint = "config.toml was not changed. Run `llmc config edit` to continue editing."
        raise error
    from llmc.base.files import write_atomic

    write_atomic(path, text.encode())
    draft.unlink()
    if _source(before) != _source(after):
        _look_at_source(root_of(ctx))


def _source(config: Config | None) -> tuple[str, str] | None:
    return None if config is None else (config.repo.source, config.repo.default_branch)


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
