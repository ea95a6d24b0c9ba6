"""The user's roots other than the one on the screen: a live count of what needs the user in each.

Their subscriptions are slow: they capture no screens, and look at a busy root every two seconds.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from llmc.api import roots
from llmc.api.subscription import Change, FleetSeen, Subscription, Trouble
from llmc.api.views import Counts
from llmc.base.errors import LlmcError

#: minimum time between two looks at a root
PAUSE_S = 2.0
#: time between two looks if nothing changes
REST_S = 60.0


class RootSeen(Struct, frozen=True):
    """A root of this user."""

    path: str
    #: None: not read yet
    counts: Counts | None = None
    #: why it cannot be read
    problem: str = ""


class OtherRoots:
    """Follows several roots, each in its own thread, and reports their changes to one listener."""

    def __init__(self, listener: Callable[[RootSeen], None]) -> None:
        self._listener = listener
        self._subscriptions: list[Subscription] = []
        self._ended = False

    def follow(self, paths: Sequence[str]) -> None:
        """Follow these roots too, from now on."""
        for path in paths:
            if self._ended:
                break
            try:
                project = roots.open_project(path)
            except LlmcError as error:
                self._listener(RootSeen(path, problem=error.message))
                continue
            hear = self._hearing(path)
            self._subscriptions.append(Subscription(project, hear, pause_s=PAUSE_S, rest_s=REST_S).start())
        if self._ended:
            self.stop()

    def _hearing(self, path: str) -> Callable[[Change], None]:
        def hear(change: Change) -> None:
            match change:
                case FleetSeen():
                    self._listener(RootSeen(path, change.fleet.counts))
                case Trouble() if change.text:
                    self._listener(RootSeen(path, problem=change.text))

        return hear

    def stop(self) -> None:
        """Stop following all roots, without waiting for one that is slow to read."""
        self._ended = True
        for subscription in self._subscriptions:
            subscription.end()
