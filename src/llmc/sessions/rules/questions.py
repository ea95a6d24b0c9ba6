"""What a client asks in a dialog, from the hook that tells of it. Pure."""

import json
from typing import Any

from llmc.records.hook_events import HookEvent
from llmc.records.worker import Asked

#: the tool with which an agent asks a person something
ASK = "AskUserQuestion"
#: so much of a question is kept; the dialog itself has all of it
MOST_CHARS = 1000


def asked(event: HookEvent) -> Asked:
    """The question of a PermissionRequest. Whatever is not as expected is shown, and never answered from outside."""
    tool, given = event.text("tool_name"), event.payload.get("tool_input")
    if tool == ASK and (found := _one_question(given)) is not None:
        text, options = found
        return Asked(tool=tool, text=text, at_unix=event.at_unix, options=options, answerable=bool(options))
    said = _all_questions(given) if tool == ASK else f"{tool}: {_wants(given)}"
    return Asked(tool=tool, text=said[:MOST_CHARS], at_unix=event.at_unix)


def _one_question(given: Any) -> tuple[str, tuple[str, ...]] | None:
    """Text and labels, where there is one question with one answer."""
    rows = given.get("questions") if isinstance(given, dict) else None
    if not isinstance(rows, list) or len(rows) != 1 or not isinstance(rows[0], dict):
        return None
    text, options, several = (rows[0].get(key) for key in ("question", "options", "multiSelect"))
    if not isinstance(text, str) or not isinstance(options, list) or several:
        return None
    found = [one.get("label") for one in options if isinstance(one, dict)]
    labels = tuple(one for one in found if isinstance(one, str))
    return (text, labels) if len(labels) == len(options) and len(text) <= MOST_CHARS else None


def _all_questions(given: Any) -> str:
    rows = given.get("questions") if isinstance(given, dict) else None
    found = (
        [one.get("question") for one in rows or () if isinstance(one, dict)] if isinstance(rows, list) else []
    )
    return " / ".join(one for one in found if isinstance(one, str)) or "it asks something"


def _wants(given: Any) -> str:
    """What a tool would do: its command, its file, or all it was given."""
    if not isinstance(given, dict):
        return "permission"
    for key in ("command", "file_path", "url", "plan"):
        if isinstance(given.get(key), str):
            return str(given[key])
    return json.dumps(given, ensure_ascii=False)
