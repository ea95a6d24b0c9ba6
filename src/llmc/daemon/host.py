"""Hosts the daemons of several roots in one process, each with its own lanes, log, registration and shutdown.

Only this module handles the process itself: the event loop, the signals, and the exit. `llmc up` hosts one root.
"""

import asyncio
import os
import signal
from collections.abc import Sequence

from llmc.base import clock
from llmc.daemon import control
from llmc.daemon.log import say
from llmc.daemon.main import Daemon

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, control.HAND_OVER)


class Host:
    def __init__(self, daemons: Sequence[Daemon]) -> None:
        self._daemons = daemons
        #: why a root failed to start, or ended
        self._errors: list[Exception] = []

    def run(self) -> int:
        """Run until each root has stopped. Raises the error if all of them failed."""
        begun = [daemon for daemon in self._daemons if self._has_begun(daemon)]
        if begun:
            asyncio.run(self._main(begun))
        if len(self._errors) == len(self._daemons):
            raise self._errors[0]
        code = max((daemon.exit_code for daemon in begun), default=0) or int(bool(self._errors))
        if clock.running():  # a hung thread would block us forever, and is safe to kill
            os._exit(code)
        return code

    def _has_begun(self, daemon: Daemon) -> bool:
        try:
            daemon.begin()
        except Exception as error:
            self._note(daemon, error)
            return False
        return True

    async def _main(self, daemons: Sequence[Daemon]) -> None:
        loop = asyncio.get_running_loop()
        for daemon in daemons:
            daemon.loop = loop
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._told, daemons, number)
        await asyncio.gather(*(self._serve(daemon) for daemon in daemons))

    @staticmethod
    def _told(daemons: Sequence[Daemon], number: signal.Signals) -> None:
        for daemon in daemons:
            daemon.told(number)

    async def _serve(self, daemon: Daemon) -> None:
        try:
            await daemon.serve()
        except Exception as error:
            self._note(daemon, error)

    def _note(self, daemon: Daemon, error: Exception) -> None:
        """Keep the error, which is also in that root's log. If there are other roots, print it too."""
        self._errors.append(error)
        if len(self._daemons) > 1:
            say(f"{daemon.project.root.path}: {error}")
