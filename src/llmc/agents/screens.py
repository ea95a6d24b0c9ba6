"""What an agent shows on its screen, and the keys it takes.

Only those who press keys may look at it (`sessions/typist.py`, `workers/answering.py`): what it shows decides about keys, never about a status.
"""

from typing import Protocol

from llmc.agents.agent_events import Composer, Shown
from llmc.agents.registry import kind_of


class Screen(Protocol):
    """How to read the screen of an agent of one kind; text and cursor are those of tmux. Pure."""

    @property
    def clear(self) -> str:
        """The command that begins a new conversation."""
        ...

    @property
    def leave(self) -> str:
        """The command that ends the agent."""
        ...

    @property
    def erase_key(self) -> str:
        """Removes one line of the box."""
        ...

    def composer(self, screen: str, cursor: tuple[int, int] | None = None) -> Composer: ...

    def holds(self, box: Composer, header: str, text: str) -> bool:
        """Whether the box holds the text that llmc pasted."""
        ...

    def is_placeholder(self, box: Composer) -> bool:
        """Whether all that can be seen of the text is that it is long."""
        ...

    def recognise(self, screen: str, question: str, options: tuple[str, ...]) -> Shown | None:
        """The dialog of exactly this question, or nothing."""
        ...

    def option_key(self, number: int) -> str:
        """Chooses an option of that dialog, counted from 1; the line for another answer comes after the last."""
        ...


def screen_of(agent: str) -> Screen:
    """By the name in a worker's record."""
    return kind_of(agent).screen()
