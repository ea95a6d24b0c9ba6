"""The screen of an agent, and the keys that it takes.

Only the modules that press keys may use it: `sessions/typist.py` and `workers/answering.py`. The screen decides which
keys are pressed, never what status a worker has.
"""

from typing import Protocol

from llmc.agents.agent_events import Composer, Shown
from llmc.agents.kinds import kind_of


class Screen(Protocol):
    """Reads the screen of one kind of agent, from the text and the cursor that tmux reports. Pure."""

    @property
    def clear(self) -> str:
        """The command for a new conversation."""
        ...

    @property
    def leave(self) -> str:
        """The command to exit."""
        ...

    @property
    def erase_key(self) -> str:
        """The key that deletes one line of the input box."""
        ...

    def composer(self, screen: str, cursor: tuple[int, int] | None = None) -> Composer: ...

    def holds(self, box: Composer, header: str, text: str) -> bool:
        """Whether the input box holds the text that llmc pasted."""
        ...

    def is_placeholder(self, box: Composer) -> bool:
        """Whether the box shows a placeholder instead of a long text."""
        ...

    def recognise(
        self, screen: str, question: str, options: tuple[str, ...], cursor: tuple[int, int] | None = None
    ) -> Shown | None:
        """The dialog of exactly this question, or None."""
        ...

    def option_key(self, number: int) -> str:
        """The key for an option of that dialog, counted from 1. The line for a free answer comes after the last option."""
        ...

    @property
    def up_key(self) -> str:
        """The key that moves the cursor of that dialog to the line above."""
        ...


def screen_of(agent: str) -> Screen:
    """The screen of the agent named in a worker's record."""
    return kind_of(agent).screen()
