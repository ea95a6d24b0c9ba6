"""The agents' processes: the kernel tells when one ends. tmux 3.3a sometimes misses it, and its hook never runs."""

import asyncio
import os
from collections.abc import Callable

from llmc.base.processes import is_alive

#: how soon to look again at an agent that has ended, while tmux says that it runs
ENDED_S = 0.1


class AgentsWatch:
    def __init__(self, loop: asyncio.AbstractEventLoop, poke_after: Callable[[str, float], None]) -> None:
        """`poke_after` looks at a worker after so many seconds; from any thread."""
        self._loop = loop
        self._poke_after = poke_after
        #: the agents that run, by worker
        self.pids: dict[str, int] = {}

    def watch(self, name: str, pid: int) -> None:
        """In the loop's own thread: look at the worker once this process has ended."""
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return
        if self.pids.get(name) == pid:
            os.close(fd)
            return
        self.pids[name] = pid

        def ended() -> None:
            self._loop.remove_reader(fd)
            os.close(fd)
            if self.pids.get(name) == pid:
                del self.pids[name]
            self._poke_after(name, 0.0)

        self._loop.add_reader(fd, ended)

    def found(self, name: str, pid: int) -> None:
        """From any thread: an agent that a command has launched; or one that has ended, of which tmux does not know yet."""
        if is_alive(pid):
            self._loop.call_soon_threadsafe(self.watch, name, pid)
        else:
            self._poke_after(name, ENDED_S)
