"""llmc demo"""

import shutil
import tempfile
from pathlib import Path

import click

from llmc.base.errors import UsageError
from llmc.cli.output import note, paint, say
from llmc.rehearsal import demo_auto, demo_by_hand
from llmc.rehearsal.demo_show import Show

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
        say("")
        say(paint("The fleet is still running. Look at it:", "green", bold=True))
        say(f"  export LLMC_ROOT={show.root}")
        say("  llmc status --watch      llmc attach auto-1      llmc events")
        say(f"  llmc down && rm -r {directory}")
        return
    shutil.rmtree(directory, ignore_errors=True)
    say("")
    say(paint("Now your own repository:", "green", bold=True))
    if by_hand:
        say("  cd your-repository && llmc init && llmc add adam && llmc up --detach")
        say("  llmc start --prompt 'What to do'")
    else:
        say("  cd your-repository && llmc init")
        say("  llmc tasks add 'What to do' && llmc up --auto --detach")
    say("  (llmc demo --keep leaves this fleet running to look at; llmc demo --by-hand shows manual mode)")
