"""The directives in a prompt that tell the scripted agent what to do.

The scripted agent executes them itself; the tests' loopback server turns the same steps into tool calls of the
real client. Pure.
"""

import json
import re
from typing import Any

from msgspec import Struct

PLAIN = ("sh", "say", "sleep", "ask", "task", "update", "crash", "hang", "limit", "error", "background")
CONDITIONAL = ("on-conflict", "on-reject", "on-review", "on-verify", "on-commit", "on-resume")

_HEADER = re.compile(r"^\[llmc (?P<kind>[a-z]+)-[0-9a-z-]+\]$", re.MULTILINE)
_LINE = re.compile(r"^@(?P<name>[a-z-]+)(?:[ \t]+(?P<arg>.*?))?[ \t]*$", re.MULTILINE)


class Step(Struct, frozen=True):
    """One thing to do: the directive's name and the rest of its line."""

    name: str
    arg: str


def kind(prompt: str) -> str:
    """The kind of a prompt, such as `task` or `reject`: the first word of its id, or `message` without one."""
    match = _HEADER.search(prompt)
    return match["kind"] if match else "message"


def steps(prompt: str, earlier: list[str] | None = None) -> list[Step]:
    """What the agent has to do for this prompt; `earlier` are the prompts of this conversation before it.

    Conflict and review prompts quote the original task, so only the `@on-...` lines of their kind count; if there are
    none, those of the latest earlier prompt that has some. A rejection also runs its plain directives.
    """
    prompt_kind = kind(prompt)
    wanted = f"on-{prompt_kind}"
    found = [Step(m["name"], m["arg"] or "") for m in _LINE.finditer(prompt)]
    plain = [step for step in found if step.name in PLAIN]
    if wanted not in CONDITIONAL:
        return plain
    conditional: list[Step] = []
    for text in [prompt, *reversed(earlier or [])]:
        conditional = [Step("sh", m["arg"] or "") for m in _LINE.finditer(text) if m["name"] == wanted]
        if conditional:
            break
    return conditional + plain if prompt_kind == "reject" else conditional


def task_input(arg: str) -> dict[str, Any]:
    """The input of TaskCreate, from a subject or from the whole input as JSON."""
    given = json.loads(arg) if arg.startswith("{") else {"subject": arg}
    return {"description": f"scripted task: {given['subject']}", **given}


def update_input(arg: str) -> dict[str, Any]:
    """The input of TaskUpdate, from a task id and a note or the whole metadata as JSON."""
    task, _, note = arg.partition(" ")
    return {"taskId": task, "metadata": json.loads(note) if note.startswith("{") else {"note": note}}
