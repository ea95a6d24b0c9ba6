"""The names and places of Claude Code: its hooks, its variables, and where its files are.

It imports nothing of llmc: the scripted agent speaks the same files and hooks, and has to start fast.
"""

import re

#: the events llmc listens to; no per-tool hooks: with 20 clients those alone fill two cores
HOOKS = (
    "SessionStart",
    "UserPromptSubmit",
    "Stop",
    "StopFailure",
    "SessionEnd",
    "PermissionRequest",
    "Notification",
    "SubagentStop",
    "PostCompact",
    "TaskCreated",
)

#: one tool's hook, for those who have to know of a task before its file exists: the name of the tool
TOOL_HOOKS = {"PreToolUse": "TaskCreate"}

#: the tool with which it asks a person something, and those that wait for one
ASK = "AskUserQuestion"
NEED_A_PERSON = (ASK, "EnterPlanMode", "ExitPlanMode")

#: where its files are, if not in ~/.claude
CONFIG_DIR = "CLAUDE_CONFIG_DIR"
#: the task list that its tools use, if not one of the conversation's own
TASK_LIST = "CLAUDE_CODE_TASK_LIST_ID"
#: it has tools for tasks; off by default in the newer models
TASK_TOOLS = "CLAUDE_CODE_ENABLE_TODO_TOOLS"
#: set in everything that it starts
CHILD_SESSION = "CLAUDE_CODE_CHILD_SESSION"

#: marks of an enclosing client: inherited, they silence the transcript and the status file of ours
ENCLOSING_MARKS = (
    "CLAUDECODE",
    CHILD_SESSION,
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_PROJECT_DIR",
    "TMUX",
    "TMUX_PANE",
)

#: the person's own settings of the client, with the directories it trusts
USER_CONFIG = ".claude.json"

#: below the configuration directory: transcripts, status files, task lists
PROJECTS, SESSIONS, TASKS = "projects", "sessions", "tasks"

_LONGEST_SLUG = 200


def project_slug(cwd: str) -> str:
    """The directory of a project's transcripts (read in 2.1.325): what is neither a letter nor a digit is a dash."""
    slug = re.sub(r"[^a-zA-Z0-9]", "-", cwd)
    if len(slug) <= _LONGEST_SLUG:
        return slug
    digest = 0
    for char in cwd:
        digest = (digest * 31 + ord(char)) & 0xFFFFFFFF
    return f"{slug[:_LONGEST_SLUG]}-{digest:x}"


def transcript_name(session_id: str) -> str:
    return f"{session_id}.jsonl"


def list_name(list_id: str) -> str:
    """The directory of a task list of that id."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", list_id)


def status_name(pid: int) -> str:
    """The status file of a process."""
    return f"{pid}.json"
