"""What only the keys need, by its name: `later.orders.hold(...)`. It is imported after the first frame was drawn.

Landing, sessions, goals and the night are a large part of llmc. The first frame shows none of it and does not wait for it.
"""

import gc
import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmc.api import acceptance as acceptance
    from llmc.api import commenting as commenting
    from llmc.api import orders as orders
    from llmc.api import workers as workers
    from llmc.tui import diff_view as diff_view
    from llmc.tui import form as form
    from llmc.tui import page_texts as page_texts

_PLACES = {
    "acceptance": "llmc.api",
    "commenting": "llmc.api",
    "workers": "llmc.api",
    "diff_view": "llmc.tui",
    "form": "llmc.tui",
    "orders": "llmc.api",
    "page_texts": "llmc.tui",
}


def __getattr__(name: str) -> ModuleType:
    """A key that comes before everything is imported waits for what it needs."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{_PLACES[name]}.{name}")


def load() -> None:
    """Import everything. From now on Python looks for reference cycles, but not among what was imported."""
    for name in _PLACES:
        __getattr__(name)
    gc.freeze()
    gc.enable()
