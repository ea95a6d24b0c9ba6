"""Turn a hook of Claude Code into an event (agents/agent_events.py). Nothing else reads its payload. Pure."""

import json
from typing import Any

from llmc.agents.agent_events import AgentEvent, What
from llmc.agents.claude.layout import ASK, PROJECTS, TOOL_HOOKS
from llmc.base.names import ClaudeSessionId
from llmc.base.text import pattern
from llmc.records.hook_events import HookEvent
from llmc.records.worker import Asked, Cause

#: the hook of each event
NAMES = {
    What.SESSION_STARTED: "SessionStart",
    What.PROMPT_ARRIVED: "UserPromptSubmit",
    What.TURN_ENDED: "Stop",
    What.TURN_FAILED: "StopFailure",
    What.DIALOG_OPENED: "PermissionRequest",
    What.SESSION_ENDED: "SessionEnd",
    What.TASK_ANNOUNCED: "PreToolUse",
    What.TASK_MADE: "TaskCreated",
}
_MEANINGS = {name: what for what, name in NAMES.items()}

#: the cause of a failed turn, by the client's label
_CAUSES = {
    "rate_limit": Cause.LIMIT,
    "server_error": Cause.API,
    "overloaded": Cause.API,
    "authentication_failed": Cause.AUTH,
    "oauth_org_not_allowed": Cause.AUTH,
    "billing_error": Cause.AUTH,
    "model_not_found": Cause.CONFIG,
    "invalid_request": Cause.AGENT,
    "max_output_tokens": Cause.AGENT,
    "unknown": Cause.AGENT,
}

#: how much of a question or of last words is kept; the dialog shows all of it
MOST_CHARS = 1000
#: how many answers a question may have
MOST_OPTIONS = 50
#: how much of a task's description is kept
MOST_DESCRIPTION = 65_536
#: a conversation's id becomes an argument of the client; an agent may have made it up
_SESSION = pattern(r"[0-9A-Za-z][\w.-]{0,99}")
_PATH = pattern(r"/[^\0]{1,4095}")
#: where the client keeps a transcript
_KEPT = pattern(
    rf"(?P<home>/[^\0]{{1,4000}})/{PROJECTS}/[A-Za-z0-9-]{{1,250}}/[0-9A-Za-z][\w.-]{{0,99}}\.jsonl"
)


def event_of(hook: HookEvent) -> AgentEvent:
    """The event of a hook. Never fails: a field that is missing or malformed is empty."""
    what = _MEANINGS.get(hook.name, What.OTHER)
    if what is What.TASK_ANNOUNCED and hook.text("tool_name") != TOOL_HOOKS[hook.name]:
        what = What.OTHER
    running = _running(hook)
    session, source, error = hook.word("session_id"), hook.word("source"), hook.word("error")
    transcript = hook.text("transcript_path")
    kept = _KEPT.fullmatch(transcript)
    return AgentEvent(
        id=hook.id,
        worker=hook.worker,
        instance=hook.instance,
        what=what,
        name=hook.name,
        from_subagent=bool(hook.payload.get("agent_id")),
        session=ClaudeSessionId(session) if _SESSION.fullmatch(session) else None,
        transcript=transcript if _PATH.fullmatch(transcript) else "",
        home=kept["home"] if kept else "",
        source=source,
        end=hook.word("reason"),
        is_cleared=source == "clear",
        prompt=hook.text("prompt"),
        background_running=bool(running),
        only_shells_running=bool(running) and all(task.get("type") == "shell" for task in running),
        error=error,
        cause=cause_of(error),
        last_words=hook.text("last_assistant_message")[:MOST_CHARS],
        asked=asked(hook) if what is What.DIALOG_OPENED else None,
        is_question=hook.text("tool_name") == ASK,
        task_id=hook.word("task_id"),
        task_subject=hook.word("task_subject"),
        task_description=hook.text("task_description")[:MOST_DESCRIPTION],
    )


def cause_of(error: str) -> Cause:
    """The cause behind the label of a failed turn; an unknown label is the agent's."""
    return _CAUSES.get(error, Cause.AGENT)


def _running(hook: HookEvent) -> list[dict[str, Any]]:
    """The background work that still runs."""
    tasks = hook.payload.get("background_tasks")
    found = tasks if isinstance(tasks, list) else []
    return [task for task in found if isinstance(task, dict) and task.get("status") == "running"]


def asked(hook: HookEvent) -> Asked:
    """The question of a dialog. One that is malformed is shown, but never answered from outside."""
    tool, given = hook.text("tool_name"), hook.payload.get("tool_input")
    if tool == ASK and (found := _one_question(given)) is not None:
        text, options = found
        return Asked(tool=tool, text=text, at_unix=hook.at_unix, options=options, answerable=bool(options))
    said = _all_questions(given) if tool == ASK else f"{tool}: {_wants(given)}"
    return Asked(tool=tool, text=said[:MOST_CHARS], at_unix=hook.at_unix)


def _one_question(given: Any) -> tuple[str, tuple[str, ...]] | None:
    """Text and labels, if there is one question with one answer. Options with a preview open a different dialog."""
    rows = given.get("questions") if isinstance(given, dict) else None
    if not isinstance(rows, list) or len(rows) != 1 or not isinstance(rows[0], dict):
        return None
    text, options, several = (rows[0].get(key) for key in ("question", "options", "multiSelect"))
    if not isinstance(text, str) or not isinstance(options, list) or several:
        return None
    found = [one.get("label") for one in options if isinstance(one, dict) and not one.get("preview")]
    labels = tuple(one for one in found if isinstance(one, str) and len(one) <= MOST_CHARS)
    fits = len(labels) == len(options) <= MOST_OPTIONS and len(text) <= MOST_CHARS
    return (text, labels) if fits else None


def _all_questions(given: Any) -> str:
    rows = given.get("questions") if isinstance(given, dict) else None
    found = (
        [one.get("question") for one in rows or () if isinstance(one, dict)] if isinstance(rows, list) else []
    )
    return " / ".join(one for one in found if isinstance(one, str)) or "a question without text"


def _wants(given: Any) -> str:
    """What a tool would do: its command, its file, or its whole input."""
    if not isinstance(given, dict):
        return "permission"
    for key in ("command", "file_path", "url", "plan"):
        if isinstance(given.get(key), str):
            return str(given[key])
    return json.dumps(given, ensure_ascii=False)
