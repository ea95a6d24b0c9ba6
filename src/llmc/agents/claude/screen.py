"""The screen of Claude Code, from captured text: the input box at the bottom, and the dialog of a question. Pure.

The cursor shows where keys go. A box is empty only if the cursor is at its start: in a history search the box looks the same,
but the cursor is elsewhere, and in a box with blanks the cursor is after them.

A capture with styles (`capture-pane -e`) says more than a plain one: a suggestion or hint of the client in an empty
box is dim, and only that distinguishes it from the user's draft. In a plain capture a suggestion counts as a draft,
because the opposite mistake would destroy a draft.

A key in the wrong dialog could grant a permission that the user did not give. So a question is recognized only if its
whole dialog is there, in order: the text, every option with its number and label, the line for a free answer, and the
client's help line at the bottom. If anything differs, nothing is typed. In the line for a free answer, the cursor
distinguishes the client's hint from a draft with the same words: it is before the hint.
"""

from itertools import takewhile

from llmc.agents.agent_events import Box, Composer, Shown
from llmc.base.text import pattern

_RULE = pattern(r"^[─━]{20,}")
_PLACEHOLDER = pattern(r"\[Pasted text #\d+(?: \+(?P<lines>\d+) lines?)?\]$")
#: the no-break space distinguishes the box from a prompt in the conversation and from the options of a dialog
_PROMPT, _SHELL_PROMPT = "❯\u00a0", "!\u00a0"
_HINT = "Press up to edit queued messages"

_ESCAPE = pattern(
    r"\x1b\[([0-9;:]*)m|\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()].|\x0e|\x0f"
)
_DIM, _INVERSE = 2, 7
_EXTENDED_COLOURS = (38, 48, 58)


def composer(screen: str, cursor: tuple[int, int] | None = None) -> Composer:
    """What is in the input box: the lines between the last two rules, the first of which starts with ❯ (or with !
    while the client would run the text as a shell command). `cursor` is its column and row on that screen."""
    plain, marks = _styles(screen)
    lines = plain.rstrip().split("\n")
    rules = [i for i, line in enumerate(lines) if _RULE.match(line)]
    if len(rules) < 2:
        return Composer(Box.ABSENT)
    inside = lines[rules[-2] + 1 : rules[-1]]
    if not inside or not inside[0].startswith((_PROMPT, _SHELL_PROMPT)):
        return Composer(Box.ABSENT)
    top = rules[-2] + 1
    if cursor is not None and not top <= cursor[1] < rules[-1]:
        return Composer(Box.ABSENT)
    first, *others = inside
    rows = [first[len(_PROMPT) :], *(line.removeprefix("  ") for line in others)]
    text = "\n".join(row.rstrip(" ") for row in rows).strip("\u00a0 \n")
    if first.startswith(_SHELL_PROMPT):
        return Composer(Box.DRAFT, text)  # even without text: what is pasted here would be run
    start = sum(len(line) + 1 for line in lines[:top]) + len(_PROMPT)
    end = start + len("\n".join(inside)) - len(_PROMPT)
    at_start = cursor is None or cursor == (len(_PROMPT), top)
    if not text:
        return Composer(Box.DRAFT if others else Box.EMPTY if at_start else Box.BLANK)
    # With NO_COLOR the hint is not dim. If the user typed the same words, the cursor is not before them.
    is_hint = text == _HINT and (not marks or cursor is not None)
    is_the_clients = is_hint or _is_suggestion(plain[start:end], marks[start:end])
    return Composer(Box.EMPTY) if is_the_clients and at_start else Composer(Box.DRAFT, text)


def holds(box: Composer, header: str, text: str) -> bool:
    """Whether the box holds the text we pasted: its header line, or a placeholder with the same number of lines."""
    if box.box is not Box.DRAFT:
        return False
    placeholder = _PLACEHOLDER.match(box.text)
    return header in box.text or (
        placeholder is not None and int(placeholder["lines"] or 0) == text.count("\n")
    )


def is_placeholder(box: Composer) -> bool:
    """Whether the box shows a placeholder instead of a long text."""
    return box.box is Box.DRAFT and _PLACEHOLDER.match(box.text) is not None


def _is_suggestion(text: str, marks: list[frozenset[int]]) -> bool:
    """Whether the whole text is dim. Its first character is under the cursor, and may be inverse instead."""
    shown = [mark for char, mark in zip(text, marks, strict=False) if not char.isspace()]
    if len(shown) < 2:
        return False
    first, *others = shown
    return bool(first & {_DIM, _INVERSE}) and all(_DIM in mark for mark in others)


def _styles(screen: str) -> tuple[str, list[frozenset[int]]]:
    """The text without escape sequences, and for each character whether it is dim or inverse; no marks if plain."""
    if "\x1b" not in screen:
        return screen, []
    text: list[str] = []
    marks: list[frozenset[int]] = []
    mark: frozenset[int] = frozenset()
    at = 0
    for escape in _ESCAPE.finditer(screen):
        text.append(screen[at : escape.start()])
        marks += [mark] * (escape.start() - at)
        if escape[1] is not None:
            mark = _after(mark, escape[1])
        at = escape.end()
    text.append(screen[at:])
    marks += [mark] * (len(screen) - at)
    return "".join(text), marks


def _after(mark: frozenset[int], parameters: str) -> frozenset[int]:
    """The marks in force after one SGR sequence."""
    codes = [int(code or 0) for code in parameters.split(";") if ":" not in code]
    while codes:
        code = codes.pop(0)
        if code in _EXTENDED_COLOURS:  # 38;5;N and 38;2;R;G;B: their numbers are not codes
            del codes[: {5: 2, 2: 4}.get(codes[0] if codes else 0, 0)]
        elif code == 0:
            mark = frozenset()
        elif code in (_DIM, _INVERSE):
            mark |= {code}
        elif code == 22:
            mark -= {_DIM}
        elif code == 27:
            mark -= {_INVERSE}
    return mark


_OPTION = pattern(r"^(?P<cursor>❯| ) +(?P<number>\d+)\. (?P<label>.*)$")
_FREE = pattern(r"Type something[.…]*$")
_FOOT = ("Enter to select", "Esc to cancel")


def recognise(
    screen: str, question: str, options: tuple[str, ...], cursor: tuple[int, int] | None = None
) -> Shown | None:
    """The dialog of exactly this question, or None. `cursor` is its column and row on that screen."""
    lines = [line.rstrip() for line in _styles(screen)[0].rstrip().split("\n")]
    if not lines or not all(words in lines[-1] for words in _FOOT):
        return None
    rows = [(at, found) for at, line in enumerate(lines) if (found := _OPTION.match(line)) is not None]
    first = next((i for i in reversed(range(len(rows))) if rows[i][1]["number"] == "1"), None)
    if first is None or not options:
        return None
    mine = rows[first : first + len(options) + 1]
    labels = [found["label"].strip() for _, found in mine]
    numbers = [found["number"] for _, found in mine]
    if numbers != [str(n + 1) for n in range(len(options) + 1)] or labels[:-1] != [
        _line(one) for one in options
    ]:
        return None
    if not _line(" ".join(lines[: mine[0][0]])).endswith(_line(question)):
        return None
    row, free = mine[-1]
    in_free_line = free["cursor"] == "❯"
    below = takewhile(lambda line: line and not _RULE.match(line), lines[row + 1 :])
    text = "\n".join([labels[-1], *(line.strip() for line in below)])
    before_text = cursor in (None, (free.start("label"), row))
    is_hint = _FREE.match(text) is not None and (before_text or not in_free_line)
    return Shown("" if is_hint else text, in_free_line)


def _line(text: str) -> str:
    """The text on one line, however the terminal wrapped it."""
    return " ".join(text.split())


class ClaudeScreen:
    clear, leave, erase_key, up_key = "/clear", "/exit", "C-u", "Up"
    composer = staticmethod(composer)
    holds = staticmethod(holds)
    is_placeholder = staticmethod(is_placeholder)
    recognise = staticmethod(recognise)
    option_key = staticmethod(str)
