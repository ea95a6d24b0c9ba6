"""Awkward prompts: every size and every character that has ever broken a paste."""

import random
import unicodedata

_PIECES = [
    "plain words and more of them",
    "tab\tin the middle",
    "\"double\" and 'single' quotes and `backticks`",
    "!not a shell command",
    "/not a slash command",
    "#not a comment",
    "mail@example.com and @README at the end @READ",
    "$HOME ${PATH} $(date) $$",
    "back\\slash \\n \\\\ at the end \\",
    "combining: e\u0301 a\u0308 o\u0302 n\u0303",
    "wide: 日本語 中文 한국어 ｆｕｌｌ",
    "emoji: 🚀 👩‍👩‍👧‍👦 🇩🇪 👍🏽 ❤️",
    "right to left: שלום עולם مرحبا بالعالم",
    "semi;colon | pipe & and > redirect < {braces} [brackets] (parens) ~ * ? ^",
    "exit",
    "quit",
    "%s %d #{session_name} #S #[fg=red]",
    "     leading blanks",
    "ends with blanks    ",
    "\u200bzero width\u200d and \ufeff marks",
]


def awkward(count: int, seed: int) -> list[str]:
    """`count` texts from 10 bytes to 90 KB, the same for the same seed."""
    rng = random.Random(seed)
    sizes = [10, 30, 80, 200, 500, 790, 801, 1_000, 4_000, 5_000, 12_000, 20_000, 50_000, 90_000]
    return [_text(rng, sizes[i % len(sizes)], i) for i in range(count)]


def _text(rng: random.Random, size: int, index: int) -> str:
    if index % 11 == 5:
        lines = ["x" * 5000 + rng.choice(_PIECES) for _ in range(max(1, size // 5000))]
        return f"{index} " + "\n".join(lines)
    parts = [f"{index}" if index % 3 else rng.choice(_PIECES)]
    while len("\n".join(parts).encode()) < size:
        parts.append(rng.choice(_PIECES))
    return rng.choice(["\n", "\n", "\r\n"]).join(parts)


#: one text with everything that fools a terminal: a title, the clipboard, a bell, a cleared screen, hidden
#: text, a false line, a line separator, reversed text, half an emoji, a C1 control
HOSTILE = "\x1b]0;title\x07\x1b]52;c;aGFja2Vk\x07\x07\x1b[2J\x1b[8mhidden\raccepted\u2028line\u202ederut\u2066\x9b31m\x7f\ud83d"


def acts_on_a_terminal(shown: str) -> list[str]:
    """The parts that a terminal would act on; a newline and a tab are fine."""
    turns = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u206a\u206b\u206c\u206d\u206e\u206f"
    odd = (c for c in shown if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or c in turns)
    return sorted(set(odd) - {"\n", "\t"})
