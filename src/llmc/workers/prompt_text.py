"""The text of a prompt, made fit for a terminal: what arrives is exactly what `normalise` returns. Pure."""

import re
import unicodedata

from llmc.errors import UsageError
from llmc.names import PromptId, header_line

#: longer prompts go into a file, and the agent is told to read it
MAX_TYPED_BYTES = 100_000

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def normalise(text: str) -> str:
    """Tabs to four spaces, CR to LF, composed Unicode (NFC), no trailing blanks; control characters are refused.

    The client itself would turn tabs to spaces, compose short texts and drop the end; an escape sequence could
    break out of the paste.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ")
    bad = _CONTROL.search(text)
    if bad:
        line = text.count("\n", 0, bad.start()) + 1
        raise UsageError(
            f"the prompt has a control character (U+{ord(bad[0]):04X}) in line {line}",
            hint="Remove it; a terminal would act on it instead of showing it to the agent.",
        )
    text = unicodedata.normalize("NFC", text).rstrip()
    if not text:
        raise UsageError("the prompt is empty", hint="Say what the agent should do.")
    return text


def typed(prompt_id: PromptId, text: str) -> str:
    """What is pasted: header, text, final newline. They disarm a leading `/` or `!`, a bare `exit`, a trailing `\\`."""
    return f"{header_line(prompt_id)}\n{text}\n"


def too_long(text: str) -> bool:
    return len(text.encode()) > MAX_TYPED_BYTES
