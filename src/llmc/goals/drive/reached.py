"""Which of a goal's success criteria a command can show, and whether they are met. Pure."""

import re
from collections.abc import Iterable

from llmc.goals.model import Goal

_COMMAND = re.compile(r"^`([^`\n]+)` passes\.?$")


def criterion(command: str) -> str:
    """The criterion that a command passes, in words."""
    return f"`{command.strip()}` passes"


def commands(criteria: Iterable[str]) -> tuple[str, ...]:
    """The commands of those criteria that have one."""
    found = (_COMMAND.match(text.strip()) for text in criteria)
    return tuple(match[1].strip() for match in found if match)


def is_reached(goal: Goal) -> bool:
    """Whether nothing but its plan decides about a goal: no criterion has a command, or all of them are met."""
    return not commands(goal.success_criteria) or (goal.checked is not None and goal.checked.passed)
