"""The table of commands, and what llmc says of itself: `--version` and `--help`, before click is imported.

The help is what click prints for the same table, at the same width; a test compares the two.
"""

from llmc import __version__
from llmc.base.text import wrap
from llmc.cli.output import columns, say, say_lines

#: every command: what it is for, in the order of the help text
COMMANDS: dict[str, str] = {
    "init": "Make a root for a repository.",
    "add": "Add a worker.",
    "up": "Start the agents and the daemon that looks after them.",
    "overseer": "Keep `up --auto` alive, for days.",
    "down": "Stop the agents and the daemon.",
    "status": "Show the workers.",
    "start": "Give an idle worker a task.",
    "message": "Send a message to a worker.",
    "answer": "Answer what a worker asks, without attaching.",
    "attach": "Open a worker's terminal.",
    "peek": "Print the last lines of a worker's screen.",
    "hold": "Keep llmc's hands off a worker.",
    "release": "Give a held worker back to llmc.",
    "review": "Show what a worker's accept would land.",
    "reject": "Request changes to a worker's work.",
    "accept": "Land a worker's work on the default branch.",
    "rebase": "Put a worker's commits onto the newest base.",
    "pick": "Make a branch of a worker's commits, in the source.",
    "undo": "Take the newest accept back.",
    "reset": "Make a worker idle again, on the newest base; its work is kept.",
    "nuke": "Remove a worker; all it had goes into the trash.",
    "trash": "List and restore discarded work.",
    "tasks": "The list of tasks that people and agents share.",
    "goal": "Goals: plans that are driven to their end.",
    "work": "Update plan items.",
    "doctor": "Diagnose and repair problems.",
    "wait": "Wait until a worker has a status.",
    "digest": "The morning report: what waits for you, what landed, what it cost.",
    "events": "Print what happened.",
    "usage": "Show the tokens that agents used, and what they cost.",
    "prices": "Show and update what models cost.",
    "notify": "How llmc tells you what happens while you are away.",
    "logs": "Print a worker's log, or the daemon's.",
    "console": "Open a shell in a worker's worktree.",
    "config": "Read, change and check the configuration.",
    "claude": "Run the Claude Code client that llmc uses, for example to log in.",
    "drill": "Make failures happen in a scratch root, and see that nothing is lost.",
    "demo": "See llmc at work on a sample repository.",
    "uninstall": "Take back what llmc made for a root.",
    "report": "Report on your own work (agents call this).",
    "completion": "Print the completion script of a shell.",
    "hook": "Take a hook event of an agent (agents call this).",
}

#: where each command stands: the module has a function of its name. Nothing imports those of `rehearsal`
PLACES: dict[str, str] = {
    name: module
    for module, names in {
        "llmc.cli.setting_up": "init add uninstall claude completion",
        "llmc.cli.bringing_up": "up down",
        "llmc.cli.overseeing": "overseer",
        "llmc.cli.watching": "status wait events logs digest",
        "llmc.cli.directing": "start message answer hold release attach peek console",
        "llmc.cli.reviewing": "review reject",
        "llmc.cli.accepting": "accept rebase pick undo",
        "llmc.cli.clearing": "reset nuke trash",
        "llmc.cli.tasking": "tasks",
        "llmc.cli.goal": "goal",
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

#: the options of `llmc` itself
OPTIONS: dict[str, str] = {
    "--root PATH": "The root to work on (else LLMC_ROOT, the enclosing one, or ~/llmc).",
    "--debug": "Show tracebacks.",
    "--version": "Show the version and exit.",
    "-h, --help": "Show this message and exit.",
}

#: click wraps the first paragraph and leaves the second, marked with `\\b`, as it is
ABOUT = """A fleet of Claude Code agents on one repository.

\b
First steps, inside a git repository:
  llmc init && llmc add adam && llmc up --detach
  llmc start --prompt "Fix the flaky test in tests/test_io.py"
  llmc wait adam --status needs_review && llmc accept adam
"""

#: what click makes of the width of a terminal
LEAST_WIDTH, MOST_WIDTH, MARGIN = 50, 80, 2


def answer(argv: list[str]) -> int | None:
    """Answer a command line that asks for the version or the help of llmc; None when it does not.

    `llmc` alone is left to click: so a shell asks for completions.
    """
    if argv == ["--version"]:
        say(f"llmc, version {__version__}")
    elif argv in (["-h"], ["--help"]):
        say_lines(help_text(columns()))
    else:
        return None
    return 0


def help_text(screen: int) -> str:
    """`llmc --help` on a terminal so many columns wide."""
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
    """Names on the left, what they mean beside them."""
    indent = max(map(len, rows)) + 2
    lines = []
    for name, text in rows.items():
        first, *more = _wrapped(text, width - indent - 2)
        lines += [f"  {name:<{indent}}{first}", *(f"  {'':<{indent}}{line}" for line in more)]
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    return wrap(text, width, len(text))
