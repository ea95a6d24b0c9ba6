"""A diff as text: what makes two of them the same change, and how one is quoted in a prompt. Pure."""

import re

#: how much of a diff goes into a prompt; the agent can read the rest itself
MAX_QUOTED_BYTES = 30_000

#: what a terminal would act on, or what would begin a new line: the rest of it would lose its `+`, `-` or blank
_UNFIT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def patch_id(diff: str) -> str:
    """The same for the same change on another base, whatever the lines around it moved.

    Not `git patch-id`: it ignores white space, and an indentation changed after the review is another change.
    Expects `--full-index`, so that the ids of binary files' contents are whole.
    """
    import hashlib  # 4 ms that most commands do not need

    digest = hashlib.sha256()
    index = ""
    for line in diff.split("\n"):
        if line.startswith("index "):  # ids of whole files; they matter where the contents are not shown
            index = line
            continue
        if line.startswith("@@ "):
            line = "@@"
        elif line.startswith("Binary files "):
            line += index
        digest.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()


def quoted(diff: str, limit_bytes: int = MAX_QUOTED_BYTES) -> tuple[str, int]:
    """The diff made fit for a prompt, cut at the end of a line; and how many lines were left out.

    Every line keeps its first character: nothing in a diff can look like a line of the prompt itself.
    """
    lines = _UNFIT.sub(_escaped, diff.rstrip("\n")).split("\n")
    size = 0
    for number, line in enumerate(lines):
        size += len(line.encode()) + 1
        if size > limit_bytes:
            return "\n".join(lines[:number]), len(lines) - number
    return "\n".join(lines), 0


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    if match[0] == "\r":
        return "\\r"
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no UTF-8, as Python carries it
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
