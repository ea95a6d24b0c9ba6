"""The screen for screen readers and dumb terminals: appended lines, numbered items, typed commands."""

import sys
import threading
from collections.abc import Callable

from msgspec import Struct

from llmc.api.roots import Project
from llmc.api.subscription import Change, FleetSeen, Subscription, Trouble
from llmc.api.views import Fleet
from llmc.base import proc
from llmc.base.errors import LlmcError
from llmc.tui.typed import Typed, words_of

HELP = "Type the number of an item, `list`, `quit`, or a command such as `accept adam`."


class Need(Struct, frozen=True):
    """What needs the user, here or on another node."""

    key: str
    who: str
    sentence: str
    next: str


def needs(fleet: Fleet) -> list[Need]:
    here = [
        Need(item.key, item.who, item.sentence, item.next)
        for item in fleet.items
        if item.severity != "notice"
    ]
    there = [
        Need(f"{node.name}/{one.who}", f"{node.name}/{one.who}", one.sentence, one.next)
        for node in (fleet.others.nodes if fleet.others else ())
        for one in node.there
        if one.sentence
    ]
    return here + there


class Plain:
    """Prints each change once."""

    def __init__(self, project: Project, typed: Typed, say: Callable[[str], None]) -> None:
        self._typed, self._print = typed, say
        self._fleet: Fleet | None = None
        self._said: dict[str, str] = {}
        self._turn = threading.Lock()
        self._subscription = Subscription(project, self._told)

    def run(self) -> int:
        self._say(HELP)
        self._subscription.start()
        try:
            for line in sys.stdin:
                if line.strip() in ("quit", "q", "exit"):
                    break
                self._do(line.strip())
        except KeyboardInterrupt:
            pass
        finally:
            self._subscription.stop()
        return 0

    def _told(self, change: Change) -> None:
        match change:
            case FleetSeen():
                first = self._fleet is None
                self._fleet = change.fleet
                self._say_news(change.fleet, first)
            case Trouble() if change.text:
                self._say(f"error: {change.text}")

    def _say_news(self, fleet: Fleet, first: bool) -> None:
        now = {need.key: f"{need.who}: {need.sentence}" for need in needs(fleet)}
        before, self._said = self._said, now
        if first:
            self._list()
            return
        for key, text in now.items():
            if before.get(key) != text:
                self._say(f"{list(now).index(key) + 1}. {text}")
        for key in before:
            if key not in now:
                self._say(f"resolved: {before[key]}")

    def _list(self) -> None:
        fleet = self._fleet
        if fleet is None:
            return
        counts = fleet.counts
        daemon = "daemon up" if fleet.health.daemon else "daemon not running"
        need = "1 needs you" if counts.need == 1 else f"{counts.need} need you"
        offline = f", {counts.offline} offline" if counts.offline else ""
        self._say(f"{fleet.name}: {daemon}. {need}, {counts.working} working, {counts.idle} idle{offline}.")
        for number, text in enumerate(self._said.values(), 1):
            self._say(f"{number}. {text}")
        for name in fleet.working:
            row = fleet.rows[name]
            self._say(f"{name} {row.look.word}: {row.task}")
        for node in fleet.others.nodes if fleet.others else ():
            self._say(f"node {node.name} {node.state}: {node.busy} of {node.workers} workers busy")

    def _do(self, line: str) -> None:
        items = needs(self._fleet) if self._fleet else []
        if not line or line == "list":
            self._list()
        elif line in ("help", "?"):
            self._say(HELP)
        elif line.isdecimal():
            number = int(line)
            item = items[number - 1] if 0 < number <= len(items) else None
            self._say(
                f"{item.who}: {item.sentence}; next: {item.next}" if item else f"there is no item {number}"
            )
        else:
            self._run_command(line)

    def _run_command(self, line: str) -> None:
        try:
            words = words_of(line)
            if self._typed.needs_terminal(words):
                proc.run_attached(self._typed.argv(words), env=proc.command_env())
                return
            code, output = self._typed.run(words, lambda: False)
        except LlmcError as error:
            self._say(f"{error.message}. {error.hint}")
            return
        for text in output.splitlines():
            self._say(text)
        self._say("done" if code == 0 else f"failed with exit code {code}")

    def _say(self, text: str) -> None:
        with self._turn:
            self._print(text)


def run(project: Project, typed: Typed, say: Callable[[str], None]) -> int:
    """Print what happens until the user quits."""
    return Plain(project, typed, say).run()
