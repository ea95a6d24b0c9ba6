"""Mount points of bubblewrap: hidden places of the system to cover, and writable places to clear first.

bubblewrap follows a link at a mount point, and creates a file or directory that is missing there. While it builds the
box, the whole machine is at /oldroot: a link to /oldroot/... would let a program create files anywhere on its next run.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from llmc.base.files import remove_tree
from llmc.sandbox.rules import Mount, is_of_system


def covered(hidden: Iterable[str]) -> list[str]:
    """The hidden places that are below the system's directories, which every contained program sees."""
    real = [os.path.realpath(place) for place in hidden]
    return [place for place in real if is_of_system(place) and os.path.isdir(place)]


def clear(mounts: Sequence[Mount], root: str) -> None:
    """Remove what cannot be a mount point from the writable places below `root`, if something is mounted there."""
    places = [one.path for one in mounts if one.writable and one.path.startswith(f"{root}/")]
    for mount in (one for one in mounts if one.source not in ("", one.path)):
        for place in places:
            if mount.path.startswith(f"{place}/"):
                _clear_way(place, mount)


def _clear_way(place: str, mount: Mount) -> None:
    at = place
    for part in mount.path.removeprefix(f"{place}/").split("/"):
        at = f"{at}/{part}"
        is_folder = at != mount.path or os.path.isdir(mount.source)
        if os.path.islink(at):
            os.unlink(at)
        elif os.path.lexists(at) and os.path.isdir(at) != is_folder:
            remove_tree(Path(at))
