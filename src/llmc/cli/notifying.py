"""Notifications: `llmc notify`."""

import time

import click

from llmc.api import reports
from llmc.api.reports import KINDS, Incident, Result
from llmc.api.roots import Project
from llmc.base.errors import Exit, Refused
from llmc.cli.arguments import Group, pass_project
from llmc.cli.output import json_option, plain, print_json, say
from llmc.config.durations import format_duration

#: fields of an incident in the JSON output
_SHOWN = ("kind", "key", "title", "body", "since_unix", "ended_unix", "told", "due", "failed")


@click.group("notify", cls=Group)
def notify() -> None:
    """Test and list notifications

    llmc sends one notification per incident.

    \b
    Examples:
      llmc config set notify.webhook https://hooks.example.com/...
      llmc notify test
      llmc notify list
    """


@notify.command("test")
@json_option
@pass_project
def test(project: Project, as_json: bool) -> int:
    """Send a test notification to every channel

    Exits with 1 if a channel fails.

    \b
    Example:
      llmc notify test
    """
    outcomes = reports.try_channels(project)
    if not outcomes:
        raise Refused(
            "no notification channel is configured",
            hint=f"Set one of {', '.join(reports.channel_options())} with `llmc config set`, then run `llmc notify test` again.",
        )
    if as_json:
        print_json([*map(plain, outcomes)])
    for one in [] if as_json else outcomes:
        outcome = "sent" if one.result is Result.TOLD else str(one.result)
        say(f"{one.channel}: {outcome}" + (f": {one.reason}" if one.reason else ""))
    return Exit.FAILED if any(one.result is Result.FAILED for one in outcomes) else Exit.DONE


@notify.command("list")
@json_option
@pass_project
def list_(project: Project, as_json: bool) -> None:
    """List notification kinds, channels and recent messages

    \b
    Example:
      llmc notify list --json | jq '.incidents[0]'
    """
    found = reports.notices(project)
    if as_json:
        kinds = [{"kind": kind, "on": kind in found.on, "about": KINDS[kind]} for kind in KINDS]
        rows = [plain(one, *_SHOWN) for one in found.incidents]
        print_json({"kinds": kinds, "channels": found.channels, "incidents": rows})
        return
    for kind, about in KINDS.items():
        say(f"{'on ' if kind in found.on else 'off'}  {kind:<17} {about}")
    say(f"channels: {', '.join(found.channels) or 'none'}")
    for one in found.incidents:
        say(_row(one, time.time()))


def _row(one: Incident, now: float) -> str:
    age = format_duration(max(0.0, now - one.since_unix))
    failed = [f"{name} failed: {why}" for name, why in one.failed.items()]
    told = ", ".join([*one.told, *failed]) or ("not sent yet" if one.due else "not delivered")
    state = "" if one.is_open else " (ended)"
    return f"{age} ago  {one.kind}: {one.title}{state}  [{told}]"
