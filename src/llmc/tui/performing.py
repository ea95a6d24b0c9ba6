"""Operations that keys start, each in its own thread, and what becomes of them when the screen is closed."""

import contextlib
import threading
import time
from collections.abc import Callable

from msgspec import Struct

from llmc.api.said import BAD, PLAIN, Act, Said
from llmc.tui.frame import Frame


class Order(Struct, eq=False):
    """An operation that runs."""

    command: str
    #: it is stopped when the screen is closed; any other is waited for
    stops: bool
    said: Said | None = None
    thread: threading.Thread | None = None


class Performing(Frame):
    def _worker_or_say(self, what: str) -> str:
        name, entry = self.worker_here, self.here
        if entry is not None and entry.node is not None:
            told = f"this worker is on node {entry.node.name}; press {self.key_names['enter']} to see how to {what}"
            self._say("", told, PLAIN)
        elif not name:
            self._say("", f"no worker is selected; select one to {what}", PLAIN)
        return name

    def _run(
        self,
        name: str,
        made: tuple[str, Act],
        then: Callable[[Said], None] | None = None,
        *,
        stops: bool = False,
    ) -> None:
        """Run an operation in a thread, and show its steps and its outcome."""
        command, act = made
        began = time.monotonic()
        order = Order(command, stops)
        self.orders.append(order)
        self._say(command, "...", PLAIN)

        def ended(said: Said) -> None:
            self.orders.remove(order)
            self.jobs.pop(name, None)
            self.said.append(said)
            self.redraw()
            if then is not None:
                then(said)

        def shown(text: str) -> None:
            self._soon(lambda: self._step(name, text, began))

        def work() -> None:
            order.said = said = act(shown)
            self._soon(lambda: ended(said))

        # Not a thread of textual: leaving the screen would wait for it unseen. `finish` waits for it.
        order.thread = threading.Thread(target=work, name=command, daemon=True)
        order.thread.start()

    def _soon(self, act: Callable[[], None]) -> None:
        """Do this in the screen's own thread, unless the screen is being closed. Never waits and never raises."""
        self.call_later(lambda: None if self._exit else act())

    def _send(
        self,
        key: str,
        text: str,
        name: str,
        made: tuple[str, Act],
        then: Callable[[Said], None] | None = None,
    ) -> None:
        """Run an operation with a typed text; if it fails, its form shows the text again."""

        def ended(said: Said) -> None:
            if said.tone == BAD:
                self.unsent.setdefault(key, text)
            if then is not None:
                then(said)

        self._run(name, made, ended)

    def _step(self, name: str, text: str, began: float) -> None:
        self.jobs[name] = f"{text} {time.monotonic() - began:.0f}s"
        self._draw_bars()

    def finish(self, say: Callable[[str], None]) -> None:
        """After the screen was closed: wait for the operations that still run, and tell each outcome."""

        def tell(text: str) -> None:
            with contextlib.suppress(OSError):  # the terminal may have gone, too
                say(text)

        for order in self.orders:
            if order.thread is not None and order.thread.is_alive() and not order.stops:
                tell(f"waiting for {order.command} to finish")
            if order.thread is not None:
                order.thread.join()
        for said in (*self.unsaved, *(order.said for order in self.orders if order.said is not None)):
            tell(f"{said.command}  {said.outcome}".strip())
            if said.detail.strip() not in said.outcome:
                tell(said.detail)
