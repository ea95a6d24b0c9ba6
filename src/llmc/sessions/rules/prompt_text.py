"""Prepare the text of a prompt for a terminal. Pure."""

import re
import unicodedata

from llmc.base.errors import UsageError
from llmc.base.given import CONTROL
from llmc.base.names import PromptId, header_line
from llmc.base.text import pattern

#: longer prompts go into a file that the agent is told to read
MAX_TYPED_BYTES = 100_000

#: invisible characters, which the client drops (2.1.325): soft hyphens, zero-width and direction marks, fillers
_INVISIBLE = pattern(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a]"
)
#: joiners, variation selectors and tags are part of emoji and of some scripts; after ASCII the client drops them too
_JOINER_AFTER_ASCII = pattern(r"(?<=[\x00-\x7f])[\u200c\u200d\ufe00-\ufe0f\U000e0000-\U000e0fff]+")


def normalise(text: str) -> str:
    """Normalize a prompt: four spaces per tab, LF line ends, Unicode NFC, no invisible characters or trailing blanks.

    The client does the same to some texts; doing it to all texts makes the sent one equal the received one.
    Control characters are refused: an escape sequence could break out of the paste.
    """
    text = re.sub("\r\n|[\r\u2028\u2029]", "\n", text).replace("\t", "    ")
    text = _JOINER_AFTER_ASCII.sub("", _INVISIBLE.sub("", text))
    bad = CONTROL.search(text)
    if bad:
        line = text.count("\n", 0, bad.start()) + 1
        raise UsageError(
            f"the prompt contains a control character (U+{ord(bad[0]):04X}) on line {line}",
            hint="Remove the character; a terminal would interpret it instead of passing it to the agent.",
        )
    text = unicodedata.normalize("NFC", text).rstrip()
    if not text:
        raise UsageError("the prompt is empty", hint="Describe what the agent should do.")
    return text


def typed(prompt_id: PromptId, text: str) -> str:
    """The text to paste: its header and final newline disarm a leading `/` or `!`, a bare `exit`, a trailing `\\`."""
    return f"{header_line(prompt_id)}\n{text}\n"


def too_long(text: str) -> bool:
    return len(text.encode()) > MAX_TYPED_BYTES
