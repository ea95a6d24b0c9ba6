"""llmc demo"""

import shutil
import tempfile
from pathlib import Path

import click

from llmc.cli import demo_auto, demo_by_hand
from llmc.cli.demo_show import Show
from llmc.cli.output import note, paint
from llmc.errors import UsageError

#: short: it becomes part of socket and session names
PREFIX = "llmc-demo-"


@click.command("demo")
@click.option(
    "--by-hand", is_flag=True, help="Show manual mode instead: a person reviews, rejects and accepts."
)
@click.option(
    "--agent",
    type=click.Choice(["scripted", "claude"]),
    default="scripted",
    help="Who does the work; claude is the real client, with your account and its costs.",
)
@click.option("--keep", is_flag=True, help="Leave the fleet running, and say how to look at it.")
def command(by_hand: bool, agent: str, keep: bool) -> None:
    """See llmc at work on a sample repository: no account, no configuration, nothing of yours is touched.

    \b
    Examples:
      llmc demo              nine tasks, three auto workers, a straight history
      llmc demo --by-hand    three workers and a person
    The agent is the scripted one that ships with llmc; everything else (tmux, git, hooks, receipts) is real.
    """
    if by_hand and agent != "scripted":
        raise UsageError("--by-hand shows the scripted agent only", hint="llmc demo --agent claude")
    directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    show = Show(directory, agent)
    try:
        demo_by_hand.tell(show) if by_hand else demo_auto.tell(show)
        if not keep:
            show.llmc("down")
    except BaseException:
        show.quietly("down", "--force")
        note(f"the demo did not finish; its files are in {directory}")
        raise
    if keep:
        click.echo(paint("\nThe fleet is still running. Look at it:", "green", bold=True))
        click.echo(f"  export LLMC_ROOT={show.root}")
        click.echo("  llmc status --watch      llmc attach auto-1      llmc events")
        click.echo(f"  llmc down && rm -r {directory}")
        return
    shutil.rmtree(directory, ignore_errors=True)
    click.echo(paint("\nNow your own repository:", "green", bold=True))
    if by_hand:
        click.echo("  cd your-repository && llmc init && llmc add adam && llmc up --detach")
        click.echo("  llmc start --prompt 'What to do'")
    else:
        click.echo("  cd your-repository && llmc init && llmc config set auto.task_list_id my-project")
        click.echo("  llmc tasks add 'What to do' && llmc up --auto")
    click.echo(
        "  (llmc demo --keep leaves this fleet running to look at; llmc demo --by-hand shows manual mode)"
    )
