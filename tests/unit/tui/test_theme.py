"""Every color is readable: on the page, and on the selected row."""

import pytest

from llmc.api.views import LOOKS
from llmc.tui.theme import THEMES, Theme, wants_ascii


def contrast(one: str, other: str) -> float:
    """The contrast of two colors, as WCAG computes it."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
def test_contrast(theme: Theme) -> None:
    """Break: use a yellow on white that only works on black."""
    for ground in (theme.page, theme.selected):
        for colour in (theme.text, theme.muted, theme.error, theme.good, *theme.looks.values()):
            assert contrast(colour, ground) >= 4.5, (colour, ground)
    for ground in (theme.added, theme.removed, theme.added_word, theme.removed_word):
        assert contrast(theme.text, ground) >= 4.5, ground


def test_every_look_has_its_own_signs() -> None:
    """Without color, the glyph and the word tell them apart."""
    for sign in ("glyph", "ascii", "word"):
        assert len({getattr(look, sign) for look in LOOKS.values()}) == len(LOOKS)
    assert all(look.ascii.isascii() and len(look.ascii) == 1 for look in LOOKS.values())


@pytest.mark.parametrize(
    ("environ", "setting", "ascii_only"),
    [
        ({"LANG": "C.UTF-8"}, "auto", False),
        ({"LANG": "de_DE.utf8", "LC_ALL": "POSIX"}, "auto", True),
        ({"LANG": "C.UTF-8", "TERM": "linux"}, "auto", True),
        ({}, "auto", True),
        ({}, "unicode", False),
        ({"LANG": "C.UTF-8"}, "ascii", True),
    ],
)
def test_when_only_ascii_is_drawn(environ: dict[str, str], setting: str, ascii_only: bool) -> None:
    assert wants_ascii(environ, setting) == ascii_only
