"""Every key of the screen in one table, the source of the bindings, the footer, the help page and the docs. Pure."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from llmc.base.errors import UsageError

#: where a key works
LIST, DIFF, ANY = "list", "diff", "any"
#: no other keys: see `ui.keys` in config.toml
DEFAULT: Mapping[str, str] = {}
#: the key that forms and confirmations never take
LEAVE = "ctrl+c"


class Key(Struct, frozen=True):
    """What a key does."""

    keys: tuple[str, ...]
    action: str
    #: short name for the footer; empty: not in the footer
    label: str
    help: str
    where: str = LIST

    @property
    def shown(self) -> str:
        return " ".join(map(name_of, self.keys))


KEYS = (
    Key(("j", "down"), "down", "", "Move down"),
    Key(("k", "up"), "up", "", "Move up"),
    Key(("pagedown", "ctrl+d"), "page_down", "", "Move down a page"),
    Key(("pageup", "ctrl+u"), "page_up", "", "Move up a page"),
    Key(("<", "home"), "top", "", "Go to the top"),
    Key((">", "end"), "bottom", "", "Go to the bottom"),
    Key(
        ("enter",),
        "enter",
        "attach",
        "Attach to the worker, answer the question, or show the landed commit",
    ),
    Key(("space",), "next", "next", "Go to the next worker or item that needs you"),
    Key(("d",), "diff", "diff", "Review the worker's changes, finished or not"),
    Key(("a",), "accept", "accept", "Land the worker's changes (asks for confirmation)"),
    Key(("r",), "request", "changes", "Open the worker's diff to comment and request changes"),
    Key(("m",), "message", "message", "Send a message to the worker"),
    Key(("A",), "answer", "answer", "Answer the worker's question"),
    Key(("s",), "start", "start", "Start a task on the worker"),
    Key(("n",), "new", "", "Add a worker"),
    Key(("h",), "hold", "", "Put the worker on hold, or release it"),
    Key(("u", "z"), "undo", "", "Revert the most recently landed change (asks for confirmation)"),
    Key(("left",), "fold", "", "Fold the section"),
    Key(("right",), "unfold", "", "Unfold the section"),
    Key(("tab",), "focus", "", "Switch between the list and the pane"),
    Key(("[",), "tab_left", "", "Show the previous tab in the pane"),
    Key(("]",), "tab_right", "", "Show the next tab in the pane"),
    Key(("+",), "full", "", "Maximize the pane, or restore its size"),
    Key(("t",), "tasks", "", "Show the tasks and their dependencies"),
    Key(("g",), "goals", "", "Show the goals"),
    Key(("N",), "night", "", "Show what landed, the cost, and a timeline for each worker"),
    Key(("e",), "events", "", "Show the events"),
    Key(("R",), "roots", "", "List your roots; Enter opens one"),
    Key(("}",), "next_root", "", "Switch to the next root"),
    Key(("{",), "previous_root", "", "Switch to the previous root"),
    Key(("y",), "copy", "", "Copy the suggested command or the landed commit ID"),
    Key(("@",), "log", "", "Show the commands run in this session and their results", ANY),
    Key(("M",), "mouse", "", "Turn the mouse off or on (off lets the terminal select text)", ANY),
    Key(("/",), "filter", "filter", "Filter the list by text"),
    Key((":", "ctrl+p"), "command", "command", "Run any llmc command", ANY),
    Key(("?",), "help", "help", "Show the keys", ANY),
    Key(("ctrl+l",), "redraw", "", "Redraw the screen", ANY),
    Key(("escape",), "back", "", "Go back one step", ANY),
    Key(("q",), "quit", "", "Go back one step, or quit", ANY),
    Key(("ctrl+c",), "leave", "", "Quit immediately", ANY),
    Key(("j", "down"), "down", "", "Move down", DIFF),
    Key(("k", "up"), "up", "", "Move up", DIFF),
    Key(("pagedown", "ctrl+d"), "page_down", "", "Move down a page", DIFF),
    Key(("pageup", "ctrl+u"), "page_up", "", "Move up a page", DIFF),
    Key(("<", "home"), "top", "", "Go to the top", DIFF),
    Key((">", "end"), "bottom", "", "Go to the bottom", DIFF),
    Key(("n",), "next_hunk", "hunk", "Go to the next hunk", DIFF),
    Key(("p",), "previous_hunk", "", "Go to the previous hunk", DIFF),
    Key(("]",), "next_file", "file", "Go to the next file", DIFF),
    Key(("[",), "previous_file", "", "Go to the previous file", DIFF),
    Key(("N",), "next_comment", "", "Go to the next comment", DIFF),
    Key(("P",), "previous_comment", "", "Go to the previous comment", DIFF),
    Key(("c",), "comment", "comment", "Comment on the line, or edit its draft", DIFF),
    Key(("D",), "delete_draft", "", "Delete the draft on the line", DIFF),
    Key(("X",), "close", "", "Close or reopen the sent comment on the line", DIFF),
    Key(("x",), "viewed", "viewed", "Mark the file as viewed and fold it", DIFF),
    Key(
        ("f", "left", "right"),
        "fold",
        "",
        "Fold or unfold the unchanged lines or the file at the cursor",
        DIFF,
    ),
    Key(("}",), "more_context", "", "Show more unchanged lines around each change", DIFF),
    Key(("{",), "less_context", "", "Show fewer unchanged lines around each change", DIFF),
    Key(("F",), "fold_all", "", "Fold or unfold all files", DIFF),
    Key(("i",), "since", "since", "Switch between all changes and those since the last round", DIFF),
    Key(("a",), "accept", "accept", "Land the worker's changes (asks for confirmation)", DIFF),
    Key(("r",), "request", "send", "Send all comments as one request for changes", DIFF),
    Key(("m",), "message", "", "Send a message to the worker", DIFF),
    Key(("o",), "open", "", "Open the file in $EDITOR", DIFF),
    Key(("+",), "full", "wide", "Maximize the diff, or restore its size", DIFF),
)

_NAMES = {
    "down": "↓",
    "up": "↑",
    "left": "←",
    "right": "→",
    "enter": "Enter",
    "space": "Space",
    "escape": "Esc",
    "tab": "Tab",
    "pagedown": "PgDn",
    "pageup": "PgUp",
    "home": "Home",
    "end": "End",
}


def name_of(key: str) -> str:
    """The display name of a key."""
    return _NAMES.get(key) or key.replace("ctrl+", "C-")


def names(remapped: Mapping[str, str]) -> dict[str, str]:
    """The display name of the first key of each action."""
    return {key.action: name_of(remapped.get(key.action, key.keys[0])) for key in KEYS}


def actions(where: str, remapped: Mapping[str, str]) -> dict[str, str]:
    """The action of each key in a view. `remapped`: other keys by action; refuses a taken key or an unknown action."""
    found: dict[str, str] = {}
    known = {key.action for key in KEYS}
    for action in remapped:
        if action not in known:
            raise UsageError(
                f"ui.keys: unknown action {action!r}", hint=f"Valid actions: {', '.join(sorted(known))}"
            )
    for key in of(where, remapped):
        for one in key.keys:
            if found.setdefault(one, key.action) != key.action:
                raise UsageError(
                    f"ui.keys: {one!r} is assigned to both {found[one]} and {key.action}",
                    hint=f"Choose another key: llmc config set ui.keys.{key.action} KEY",
                )
    return found


def why_nothing(key: str, where: str, in_list: Mapping[str, str], key_names: Mapping[str, str]) -> str:
    """The message for a key that has no action in a view."""
    if where != LIST and key in in_list:
        return f"{name_of(key)} works in the list, not in a review; press {key_names['back']} to go back to the list"
    return f"{name_of(key)} does nothing here; press {key_names['help']} to see the keys"


def of(where: str, remapped: Mapping[str, str] = DEFAULT) -> list[Key]:
    """The keys that work in a view."""
    found = (key for key in KEYS if key.where in (where, ANY))
    return [replace(key, keys=(remapped[key.action],)) if key.action in remapped else key for key in found]


#: these keys lead to all others, so they get room in the footer first
FIRST = ("help", "command", "start")


def footer(where: str, width: int, remapped: Mapping[str, str] = DEFAULT) -> str:
    """The most useful keys, as many as fit."""
    parts = {key.action: f"{name_of(key.keys[0])} {key.label}" for key in of(where, remapped) if key.label}
    chosen: list[str] = []
    for action in sorted(parts, key=lambda one: FIRST.index(one) if one in FIRST else len(FIRST)):
        if len("  ".join(parts[one] for one in (*chosen, action))) > width:
            break
        chosen.append(action)
    return "  ".join(part for action, part in parts.items() if action in chosen)
