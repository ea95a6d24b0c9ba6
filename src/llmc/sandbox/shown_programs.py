"""Find the programs that a contained agent needs: those on PATH, llmc's interpreter, the agent itself.

They are shown even if they are in the user's home. A `bin` directory comes with what is beside it, such as `lib`.
"""

import os
import sys
from collections.abc import Iterable, Sequence

from llmc import launch
from llmc.sandbox import rules

#: needed by the programs in `bin` beside them
_BESIDE_BIN = ("lib", "lib64", "libexec", "pyvenv.cfg")


def is_seen(place: str, hidden: Iterable[str]) -> bool:
    """Whether every contained program sees this place: it belongs to the system, and is not below a hidden one."""
    return rules.is_of_system(place) and not any(place.startswith(f"{one}/") for one in hidden)


def places(path: str, program: str, hidden: Sequence[str]) -> list[str]:
    """The files and directories of the programs on PATH and of `program`; none that contains a hidden place."""
    found = [_place_of(os.path.realpath(program), hidden), *_interpreter()]
    for folder in dict.fromkeys(path.split(os.pathsep)):
        if os.path.isabs(folder) and os.path.isdir(folder) and not is_seen(folder, hidden):
            found += [folder, *(_place_of(target, hidden) for target in _link_targets(folder))]
    return _with_what_is_beside(found, hidden)


def of(names: Iterable[str], hidden: Sequence[str]) -> list[str]:
    """The same as `places`, for these programs only."""
    import shutil  # takes 2 ms, and few commands need it

    found = [path for name in names if (path := shutil.which(name))]
    places = [_place_of(path, hidden) for one in found for path in (one, os.path.realpath(one))]
    return _with_what_is_beside(places, hidden)


def _place_of(program: str, hidden: Sequence[str]) -> str:
    """The program's directory, or the program alone if that contains a hidden place: a client directly in the home."""
    folder = os.path.dirname(program)
    return program if rules.contains_any(folder, hidden) else folder


def _with_what_is_beside(folders: Iterable[str], hidden: Iterable[str]) -> list[str]:
    found = [*folders]
    found += [
        f"{os.path.dirname(folder)}/{name}" for folder in found if _is_bin(folder) for name in _BESIDE_BIN
    ]
    kept = [os.path.normpath(place) for place in dict.fromkeys(found) if os.path.exists(place)]
    return [place for place in kept if not is_seen(place, hidden) and not rules.contains_any(place, hidden)]


def _is_bin(folder: str) -> bool:
    return os.path.basename(folder) == "bin"


def _interpreter() -> list[str]:
    """Python and llmc, for the hook sender, the `llmc` of agents, and the scripted agent."""
    package = os.path.dirname(launch.__file__)
    prefixes = {sys.prefix, sys.base_prefix, os.path.realpath(sys.base_prefix)}
    return [*sorted(prefixes), os.path.dirname(os.path.realpath(sys.executable)), package]


def _link_targets(folder: str) -> list[str]:
    """The files that links in a directory lead to."""
    try:
        links = [entry.path for entry in os.scandir(folder) if entry.is_symlink()]
    except OSError:
        return []
    real = [os.path.realpath(link) for link in links]
    return [target for target in real if os.path.isfile(target)]
