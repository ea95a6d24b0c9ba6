"""Several machines that share one queue: `llmc fleet`."""

import click
from click.shell_completion import CompletionItem
from msgspec import to_builtins

from llmc.api import fleet_nodes as service
from llmc.api.fleet_nodes import Node
from llmc.api.roots import Project
from llmc.base.errors import Exit
from llmc.base.text import padded
from llmc.cli.arguments import Group, pass_project
from llmc.cli.output import completion, json_option, note, paint, plain, print_json, say, say_or_json
from llmc.config.durations import format_duration

_COLORS = {"up": "green", "draining": "yellow", "silent": "red"}


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    found = service.names((ctx.find_root().params or {}).get("root"))
    return [completion(name, help=state) for name, state in found.items() if name.startswith(incomplete)]


_node = click.argument("node", required=False, default="", shell_complete=_complete)


@click.group("fleet", cls=Group)
def fleet() -> None:
    """Share tasks and goals with other machines

    All nodes use one PostgreSQL database and one git remote.

    \b
    Examples:
      llmc config set fleet.database postgresql://llmc@db.example.com/llmc
      llmc fleet init
      llmc up --auto
    """


@fleet.command("init")
@json_option
@pass_project
def init(project: Project, as_json: bool) -> None:
    """Set up the database and join the fleet

    After upgrading llmc, run this command again to update the tables.

    \b
    Example:
      llmc fleet init
    """
    done = service.init(project)
    what = "set up the tables" if done.migrations else "the tables are up to date"
    if not as_json:
        say(f"{done.database}: {what}")
    say_or_json(f"node {done.node.name} joined the fleet", _joined(done), as_json)


@fleet.command("join")
@json_option
@pass_project
def join(project: Project, as_json: bool) -> None:
    """Make this root a node of the fleet

    \b
    Example:
      llmc config set fleet.node laptop
      llmc fleet join
    """
    done = service.join(project)
    say_or_json(f"node {done.node.name} joined the fleet in {done.database}", _joined(done), as_json)


def _joined(done: service.Joined) -> dict[str, object]:
    return {"node": done.node.name, "database": done.database, "migrations": done.migrations}


@fleet.command("status")
@json_option
@pass_project
def status(project: Project, as_json: bool) -> int:
    """Show the database, the queue and the nodes

    Exits with 1 if the database is not responding.

    \b
    Example:
      llmc fleet status --json | jq .tasks
    """
    return show(project, as_json)


def show(project: Project, as_json: bool) -> int:
    """Print the whole fleet; also for `llmc status --fleet`."""
    found = service.view(project)
    if as_json:
        print_json(to_builtins(found))
        return Exit.FAILED if found.problem else Exit.DONE
    say(f"node      {found.node}")
    say(f"database  {found.database}")
    if found.problem:
        note(paint(found.problem, "red", err=True))
        return Exit.FAILED
    tasks = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in found.tasks.items() if count)
    say(f"tasks     {tasks or 'none'} (list {found.list_name})")
    _say_nodes(found.nodes)
    for node in service.told_once(sorted(found.nodes, key=lambda node: not node.is_own)):
        for need in node.attention:
            say(f"{need.severity:<8}  {node.name}: {need.who}: {need.text}")
            if command := service.command_for(node, need):
                say(f"          next: {command}")
    for one in found.answers:
        age = format_duration(round(one.age_s))
        why = f": {one.reason}" if one.reason else ""
        say(f"answer    {one.node}/{one.worker}: {one.outcome}{why} (sent by {one.sender} {age} ago)")
    return Exit.DONE


@fleet.command("nodes")
@json_option
@pass_project
def nodes(project: Project, as_json: bool) -> None:
    """List the nodes

    \b
    Example:
      llmc fleet nodes
    """
    found = service.nodes(project)
    if as_json:
        print_json(to_builtins(found))
        return
    _say_nodes(found)


def _say_nodes(found: list[Node]) -> None:
    width = max((len(node.name) for node in found), default=0)
    for node in found:
        state = paint(padded(node.state, 8), _COLORS.get(node.state, "bright_black"))
        workers = f"{len(node.busy)}/{len(node.workers)} workers busy" if node.workers else "no workers"
        seen = f"seen {format_duration(round(node.silent_s))} ago"
        versions = f"llmc {node.version}" + (f", {node.client}" if node.client else "")
        own = " (this node)" if node.is_own else ""
        say(f"{padded(node.name, width)}  {state}  {workers}  {seen}  {versions}  {node.place}{own}")
    if not found:
        say("no nodes; to join: llmc fleet join")


@fleet.command("drain")
@_node
@click.option("--undo", is_flag=True, help="Let the node accept new tasks again")
@json_option
@pass_project
def drain(project: Project, node: str, undo: bool, as_json: bool) -> None:
    """Let a node finish its tasks and stop

    Without NODE, drains this node.

    \b
    Example:
      llmc fleet drain server-2
    """
    found = service.drain(project, node, undo=undo)
    text = (
        f"node {found.name} accepts new tasks again"
        if undo
        else f"node {found.name} no longer accepts new tasks"
    )
    say_or_json(text, plain(found), as_json)


@fleet.command("leave")
@_node
@json_option
@pass_project
def leave(project: Project, node: str, as_json: bool) -> None:
    """Remove a node from the fleet

    Its tasks go to the other nodes. Without NODE, removes this node. A running node must be drained first.

    \b
    Example:
      llmc fleet leave server-2
    """
    found = service.leave(project, node)
    say_or_json(f"node {found.name} left the fleet", plain(found), as_json)
