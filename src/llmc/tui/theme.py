"""Colors of the screen: for dark and light terminals, and the terminal's own sixteen. Pure.

Color comes third, after the word and the glyph: every status can be told apart without it.
"""

from collections.abc import Mapping

from msgspec import Struct

from llmc.api.views import LOOKS, Look


class Theme(Struct, frozen=True):
    """The colors of one theme."""

    name: str
    dark: bool
    page: str
    selected: str
    text: str
    muted: str
    #: by the name of a look
    looks: Mapping[str, str]
    added: str
    added_word: str
    removed: str
    removed_word: str
    error: str
    good: str


DARK = Theme(
    name="dark",
    dark=True,
    page="#0f1419",
    selected="#26303a",
    text="#e6edf3",
    muted="#9aa7b4",
    looks={
        "asks": "#fecc4b",
        "review": "#e1b1fb",
        "broken": "#f86861",
        "works": "#3399fe",
        "landing": "#85f5f5",
        "held": "#e96fc4",
        "idle": "#aaadaf",
        "offline": "#aaadaf",
        "landed": "#bafaa4",
        "notice": "#fecc4b",
    },
    added="#10304a",
    added_word="#1f5f96",
    removed="#4a2410",
    removed_word="#8f4518",
    error="#f86861",
    good="#bafaa4",
)

LIGHT = Theme(
    name="light",
    dark=False,
    page="#ffffff",
    selected="#e6ebf0",
    text="#1b2128",
    muted="#57606a",
    looks={
        "asks": "#955e07",
        "review": "#8429b2",
        "broken": "#9c0f04",
        "works": "#09398b",
        "landing": "#036273",
        "held": "#b9298e",
        "idle": "#4d5156",
        "offline": "#4d5156",
        "landed": "#0f3410",
        "notice": "#955e07",
    },
    added="#dcecff",
    added_word="#a8d0ff",
    removed="#ffe6d1",
    removed_word="#ffc491",
    error="#9c0f04",
    good="#0f3410",
)

THEMES = {theme.name: theme for theme in (DARK, LIGHT)}


def glyph_of(look: Look, *, plain: bool) -> str:
    """The glyph of a look; `plain`: in ASCII, for a terminal that may not have the glyph."""
    return look.ascii if plain else look.glyph


def wants_ascii(environ: Mapping[str, str], setting: str) -> bool:
    """Whether to draw with ASCII only: by `ui.glyphs`, else by the locale and the terminal."""
    if setting != "auto":
        return setting == "ascii"
    if environ.get("TERM") in ("linux", "dumb"):
        return True
    locale = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
    return "utf" not in locale.lower()


assert all(set(theme.looks) == set(LOOKS) for theme in THEMES.values())
