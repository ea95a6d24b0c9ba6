"""The sign of life of auto mode: written only while the event loop and every lane get on."""

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable

from llmc.base import progress
from llmc.base.clock import now_unix
from llmc.base.files import write_atomic
from llmc.config.paths import Root

INTERVAL_S = 5.0
#: beats in the time after which a supervisor takes a missing one for a hang
BEATS = 4
#: how long the loop, or a lane that waits for nothing, may take for one step; drills need not wait that long
STUCK_S = float(os.environ.get("LLMC_STUCK_S") or 120.0)


class Heartbeat:
    """A thread of its own: nothing that hangs elsewhere can keep it from noticing."""

    def __init__(
        self, root: Root, instance_id: str, on_stuck: Callable[[str], None], timeout_s: float = 30.0
    ) -> None:
        self._root = root
        self._instance_id = instance_id
        self._on_stuck = on_stuck
        self._interval_s = min(INTERVAL_S, timeout_s / BEATS)
        self._mark = time.monotonic()
        self._stop = threading.Event()
        self._said = ""
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._beat()
        self._thread.start()

    def mark(self) -> None:
        """The event loop gets on."""
        self._mark = time.monotonic()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=2 * self._interval_s)

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._beat()

    def _beat(self) -> None:
        stuck = "the event loop" if time.monotonic() - self._mark > STUCK_S else progress.stuck(STUCK_S)
        if stuck is None:
            body = {"timestamp_unix": now_unix(), "instance_id": self._instance_id}
            try:
                write_atomic(self._root.heartbeat, json.dumps(body).encode())
            except Exception:
                return  # a full disk is for those to say who need it; the next beat may work
        elif stuck != self._said:
            self._said = stuck
            # A log that cannot be written must not end the beats to come.
            with contextlib.suppress(Exception):
                self._on_stuck(stuck)
