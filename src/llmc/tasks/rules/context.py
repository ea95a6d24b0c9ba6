"""What is said before and after a task, by its label."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from llmc.records.task import Task


class BadContext(ValueError):
    """The context file does not say what it should; one line about it."""


class Context(Struct, frozen=True):
    prologue: str = ""
    epilogue: str = ""


def read(raw: Mapping[str, Any]) -> dict[str, Context]:
    """The tables of the context file, checked."""
    found = {}
    for label, table in raw.items():
        if not isinstance(table, Mapping):
            raise BadContext(f"`{label}` is no table; write [{label}] and below it prologue and epilogue")
        for key, value in table.items():
            if key not in ("prologue", "epilogue"):
                raise BadContext(f"[{label}] has an unknown key `{key}`; known are prologue and epilogue")
            if not isinstance(value, str):
                raise BadContext(f"[{label}].{key} is no text")
        found[label] = Context(table.get("prologue", ""), table.get("epilogue", ""))
    return found


def of(task: Task, contexts: Mapping[str, Context]) -> Context:
    """The label's own, else the default's, else nothing; a label with one of the two has nothing for the other."""
    return contexts.get(task.label) or contexts.get("default") or Context()


def task_text(task: Task, context: Context) -> str:
    """Prologue, subject and description, epilogue; empty parts leave no gap."""
    parts = (context.prologue, task.subject, task.description, context.epilogue)
    return "\n\n".join(text for part in parts if (text := part.strip("\n")).strip())
