"""The table of commands, and `llmc --version` and `llmc --help`, which do not import click.

The help is the same as the help that click prints; a test compares the two.
"""

from llmc import __version__
from llmc.base.text import wrap
from llmc.cli.output import columns, say, say_lines

#: every command and its help line, in the order of the help text
COMMANDS: dict[str, str] = {
    "init": "Create an llmc root for a repository",
    "add": "Add a worker",
    "up": "Start the workers and the daemon",
    "overseer": "Keep auto mode running and manage goals",
    "down": "Stop the workers and the daemon",
    "status": "Show the status of all workers",
    "ui": "Show the fleet on an interactive screen",
    "web": "Show the fleet in a browser",
    "start": "Start a task on an idle worker",
    "message": "Send a message to a worker",
    "inbox": "List open questions, oldest first",
    "answer": "Answer a question from a worker or a goal",
    "attach": "Attach to a worker's terminal",
    "peek": "Show the last lines of a worker's screen",
    "hold": "Put a worker on hold so that llmc leaves it alone",
    "release": "Release a worker from hold",
    "review": "Review the changes a worker wants to land",
    "reject": "Request changes from a worker",
    "accept": "Land a worker's changes on the default branch",
    "rebase": "Rebase a worker onto the latest default branch",
    "pick": "Copy a worker's commits to a branch in the source repository",
    "undo": "Revert the most recently landed change",
    "reset": "Reset a worker to idle; its work goes to the trash",
    "nuke": "Remove a worker and move its work to the trash",
    "trash": "List and restore discarded work",
    "tasks": "Manage the task list",
    "goal": "Manage goals",
    "fleet": "Share tasks and goals with other machines",
    "work": "Set the status of a plan item",
    "doctor": "Find and repair problems with a root",
    "wait": "Wait for workers or tasks to reach a status",
    "digest": "Summarize what landed, what failed and what needs you",
    "events": "Show the event log",
    "usage": "Show token usage and cost",
    "prices": "Show and update model prices",
    "notify": "Test and list notifications",
    "logs": "Show the log of a worker or the daemon",
    "console": "Open a shell in a worker's worktree",
    "config": "Get, set and check configuration",
    "claude": "Run the Claude Code client that llmc uses",
    "drill": "Inject failures in a scratch root to test recovery",
    "demo": "Run a demo on a sample repository",
    "uninstall": "Remove a root and everything llmc created for it",
    "report": "Report the status of your work (for agents)",
    "service": "Print a systemd unit that keeps llmc running",
    "completion": "Print a shell completion script",
    "hook": "Receive a hook event from an agent (internal)",
}

#: the module of each command, with a function of its name. Nothing else imports the modules in `rehearsal`
PLACES: dict[str, str] = {
    name: module
    for module, names in {
        "llmc.cli.setting_up": "init add uninstall claude completion",
        "llmc.cli.bringing_up": "up down",
        "llmc.cli.overseeing": "overseer",
        "llmc.cli.ui": "ui",
        "llmc.cli.web": "web service",
        "llmc.cli.watching": "status wait events logs digest",
        "llmc.cli.directing": "start message answer hold release attach peek console",
        "llmc.cli.reviewing": "review reject",
        "llmc.cli.accepting": "accept rebase pick undo",
        "llmc.cli.clearing": "reset nuke trash",
        "llmc.cli.tasking": "tasks",
        "llmc.cli.goal": "goal",
        "llmc.cli.fleet": "fleet",
        "llmc.cli.goal_verbs": "inbox",
        "llmc.cli.plan_items": "work",
        "llmc.cli.spending": "usage prices",
        "llmc.cli.doctor": "doctor",
        "llmc.cli.notifying": "notify",
        "llmc.cli.config": "config",
        "llmc.cli.for_agents": "report hook",
        "llmc.rehearsal.drill": "drill",
        "llmc.rehearsal.demo": "demo",
    }.items()
    for name in names.split()
}

#: commands that only read: in a repository without a root they show ~/llmc, with a note; all others are refused there
READS = frozenset(
    (
        *("status", "wait", "events", "logs", "digest", "peek", "inbox", "usage", "claude", "doctor"),
        *(
            "tasks list",
            "tasks show",
            "tasks graph",
            "tasks export",
            "trash list",
            "trash show",
            "notify list",
        ),
        *("goal list", "goal show", "goal events", "goal why", "goal export"),
        *("config get", "config check", "prices list", "fleet status", "fleet nodes"),
    )
)

#: the options of `llmc` itself
OPTIONS: dict[str, str] = {
    "--root PATH": "llmc root to use [default: $LLMC_ROOT, the enclosing root, llmc.root in the repository's git config, or ~/llmc]",
    "--debug": "Show tracebacks",
    "--version": "Show the version and exit.",
    "-h, --help": "Show this message and exit.",
}

#: click wraps the first paragraph, but not the one marked with `\\b`
ABOUT = """Run a fleet of Claude Code agents on one repository

\b
To get started, inside a git repository:
  llmc init && llmc add adam && llmc up --detach
  llmc start --prompt "Fix the flaky test in tests/test_io.py"
  llmc wait adam --status needs_review && llmc accept adam
"""

#: how click fits help into a terminal: never narrower or wider than this
LEAST_WIDTH, MOST_WIDTH, MARGIN = 50, 120, 2


def answer(argv: list[str]) -> int | None:
    """Answer `llmc --version` and `llmc --help`; None for any other command line.

    Not for `llmc` without arguments, because that is how a shell asks for completions.
    """
    if argv == ["--version"]:
        say(f"llmc, version {__version__}")
    elif argv in (["-h"], ["--help"]):
        say_lines(help_text(columns()))
    else:
        return None
    return 0


def help_text(screen: int) -> str:
    """`llmc --help` for a terminal of this width."""
    width = max(min(screen, MOST_WIDTH) - MARGIN, LEAST_WIDTH)
    first, _, steps = ABOUT.strip().partition("\n\n\b\n")
    about = [*_wrapped(first, width - 2), "", *steps.splitlines()]
    return "\n".join(
        [
            *("Usage: llmc [OPTIONS] COMMAND [ARGS]...", ""),
            *(f"  {line}".rstrip() for line in about),
            *("", "Options:", *_list(OPTIONS, width)),
            *("", "Commands:", *_list(COMMANDS, width)),
        ]
    )


def _list(rows: dict[str, str], width: int) -> list[str]:
    """Two columns: names and descriptions."""
    indent = max(map(len, rows)) + 2
    lines = []
    for name, text in rows.items():
        first, *more = _wrapped(text, width - indent - 2)
        lines += [f"  {name:<{indent}}{first}", *(f"  {'':<{indent}}{line}" for line in more)]
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    return wrap(text, width, len(text))
