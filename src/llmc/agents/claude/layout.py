"""The names that Claude Code uses: hooks, environment variables, and files.

Imports nothing from llmc: the scripted agent uses the same names and has to start fast.
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

#: hooks for a single tool, by event: llmc learns of a task before its file exists
TOOL_HOOKS = {"PreToolUse": "TaskCreate"}

#: the tool that asks the user a question, and all tools that wait for the user
ASK = "AskUserQuestion"
NEED_A_PERSON = (ASK, "EnterPlanMode", "ExitPlanMode")

#: where its files are, if not in ~/.claude
CONFIG_DIR = "CLAUDE_CONFIG_DIR"
#: the task list of its tools, if not the conversation's own
TASK_LIST = "CLAUDE_CODE_TASK_LIST_ID"
#: turns its tools for tasks on; off by default for newer models
TASK_TOOLS = "CLAUDE_CODE_ENABLE_TODO_TOOLS"
#: set in every process that it starts
CHILD_SESSION = "CLAUDE_CODE_CHILD_SESSION"

#: marks of an enclosing client; if inherited, our client writes no transcript and no status file
ENCLOSING_MARKS = (
    "CLAUDECODE",
    CHILD_SESSION,
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_PROJECT_DIR",
    "TMUX",
    "TMUX_PANE",
)

#: the user's variables that the client reads, including the login; in the syntax of `sandbox.env`
OWN_VARIABLES = (
    *(
        "ANTHROPIC_*",
        "CLAUDE_*",
        "DISABLE_*",
        "ENABLE_*",
        "IS_SANDBOX",
        "API_TIMEOUT_MS",
        "USE_BUILTIN_RIPGREP",
    ),
    *("MAX_THINKING_TOKENS", "MAX_MCP_OUTPUT_TOKENS", "MCP_TIMEOUT", "MCP_TOOL_TIMEOUT"),
    *("BASH_DEFAULT_TIMEOUT_MS", "BASH_MAX_TIMEOUT_MS", "BASH_MAX_OUTPUT_LENGTH"),
    *("CLOUD_ML_REGION", "VERTEX_REGION_*", "AWS_REGION"),
)
#: variables with the URL of its model
ENDPOINT = r"ANTHROPIC_([A-Z]+_)*BASE_URL"
#: without such a variable: the model, and where the login is renewed
ENDPOINTS = ("api.anthropic.com", "platform.claude.com")

#: the user's settings of the client, with the trusted directories
USER_CONFIG = ".claude.json"

#: below the configuration directory: transcripts, status files, task lists
PROJECTS, SESSIONS, TASKS = "projects", "sessions", "tasks"

_LONGEST_SLUG = 200


def project_slug(cwd: str) -> str:
    """The directory of a project's transcripts (as in 2.1.325): anything but letters and digits becomes a dash."""
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
    """The directory of a task list."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", list_id)


def status_name(pid: int) -> str:
    """The status file of a process."""
    return f"{pid}.json"
