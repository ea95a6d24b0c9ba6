"""Who runs this command, by process ancestry: an agent can clear its variables, but not choose its ancestors.

The agent's process has the marks of its launch in its initial environment, which the kernel keeps. The outermost
process with a mark is the agent; the variables of programs below it are ignored. Light, for the hot commands.
"""

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from llmc.hook_client import PORTABLE, Kin, lineage, read_file

if PORTABLE:
    from llmc.base.portable import lineage
    from llmc.base.portable import words as portable_words


class Mark(NamedTuple):
    """The mark of a launch in a process."""

    pid: int
    worker: str
    instance: str
    root: str
    #: for a contained agent: its inbox and the daemon's wake-up socket, which is all it sees of its root
    inbox: str = ""
    wake: str = ""


class Server(NamedTuple):
    """A tmux server of llmc above this process."""

    name: str
    #: the server's direct child: the process of a window, or one that tmux itself started
    child: int
    #: tmux itself started the child (`run-shell`, a hook): it has no terminal
    is_job: bool


def processes() -> list[Kin]:
    """This process and its ancestors; if a parent has exited, also our session leader and its ancestors."""
    found = lineage(os.getpid())
    if found and found[0][2] not in {kin[0] for kin in found}:
        found += lineage(found[0][2])
    return found


def mark(kin: Sequence[Kin], environ: Mapping[str, str] = os.environ) -> Mark | None:
    """The mark of the outermost process that has one, else of our own variables."""
    for pid, *_, marks in reversed(kin[1:]):
        if b"LLMC_WORKER" in marks or b"LLMC_INSTANCE" in marks:
            return _mark(pid, {name.decode(): os.fsdecode(value) for name, value in marks.items()})
    if environ.get("LLMC_WORKER") or environ.get("LLMC_INSTANCE"):
        return _mark(os.getpid(), environ)
    return None


def _mark(pid: int, marks: Mapping[str, str]) -> Mark:
    names = ("WORKER", "INSTANCE", "ROOT", "INBOX", "WAKE")
    return Mark(pid, *(marks.get(f"LLMC_{name}", "") for name in names))


def server(kin: Sequence[Kin]) -> Server | None:
    """The outermost tmux server of llmc above us, by its command line: `tmux -L llmc-...`."""
    for below, above in reversed(list(pairwise(kin))):
        is_parent = below[1] == above[0]
        if is_parent and above[5].startswith(b"tmux") and (name := _server_name(above[0])):
            return Server(name, below[0], is_job=below[3] == 0)
    return None


def _server_name(pid: int) -> str:
    try:
        words = portable_words(pid) if PORTABLE else read_file(f"/proc/{pid}/cmdline").split(b"\0")
    except OSError:
        return ""
    name = words[2] if words[1:2] == [b"-L"] and len(words) > 2 else b""
    return os.fsdecode(name) if name.startswith(b"llmc-") else ""
