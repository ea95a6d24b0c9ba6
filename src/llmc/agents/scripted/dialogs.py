"""Dialogs that take the composer's place: a question of the agent, or a panel that only Esc closes."""

from queue import SimpleQueue
from typing import Any

from llmc.agents.scripted.composer import Composer

OPTIONS = [{"label": "Yes", "description": "go ahead"}, {"label": "No", "description": "do not"}]


class Dialog:
    """What is open; the worker waits on `reply` for the answer (None: cancelled)."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.box = Composer()
        self.reply: SimpleQueue[str | None] = SimpleQueue()

    def lines(self, columns: int) -> list[str]:
        return ["─" * columns, f"  {self.title}", "", "  Esc to cancel"]

    def typed(self, text: str) -> str | None:
        """A key press; the answer if it decided."""
        self.box.insert(text)
        return None

    def entered(self) -> str | None:
        """Enter; the answer if it decided."""
        return ""


class Question(Dialog):
    """AskUserQuestion: pick an option by Enter or digit, or type an answer."""

    def lines(self, columns: int) -> list[str]:
        draft = self.box.shown
        marks = ["❯" if at == 0 and not draft else " " for at in range(len(OPTIONS))]
        options = [
            f"{mark} {at}. {option['label']}"
            for at, (mark, option) in enumerate(zip(marks, OPTIONS, strict=True), 1)
        ]
        free = (
            f"{'❯' if draft else ' '} {len(OPTIONS) + 1}. {draft.replace(chr(10), ' ') or 'Type something.'}"
        )
        head = ["─" * columns, " ☐ Question", "", self.title, ""]
        return [*head, *options, free, "─" * columns, "  Enter to select · ↑/↓ to navigate · Esc to cancel"]

    def typed(self, text: str) -> str | None:
        if not self.box and text.isdigit() and 1 <= int(text) <= len(OPTIONS):
            return OPTIONS[int(text) - 1]["label"]
        return super().typed(text)

    def entered(self) -> str | None:
        return self.box.text or OPTIONS[0]["label"]


def question_input(question: str) -> dict[str, Any]:
    """The tool's input as the client passes it on."""
    return {
        "questions": [{"question": question, "header": "Question", "options": OPTIONS, "multiSelect": False}]
    }
