"""Modules that only the keys need, by name: `later.orders.hold(...)`. They are imported after the first frame is drawn.

Landing, sessions, goals and the night are a large part of llmc. The first frame does not need them and does not wait.
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
    """Import a module on demand; a key pressed before `load` has finished waits only for what it needs."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{_PLACES[name]}.{name}")


def load() -> None:
    """Import everything, then enable garbage collection of objects that are created from now on."""
    for name in _PLACES:
        __getattr__(name)
    gc.freeze()
    gc.enable()
