"""What the ticks of goals say: goals.log, which is the record for people, and events for whoever follows the fleet."""

import contextlib
import os
import time
from typing import Any

from llmc.base.errors import LlmcError
from llmc.base.files import append_line, private_dir
from llmc.goals.drive.decide import Decided
from llmc.goals.drive.intents import Action
from llmc.goals.model import Event, Result
from llmc.repo.project import Project

LOG = "goals"
#: so many actions of one tick are in its event
MOST_ACTIONS = 50


def log(project: Project, text: str) -> None:
    """goals.log: never the daemon's own log, where a warning would end it."""
    line = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {os.getpid()} {text}".replace("\n", " ")
    with contextlib.suppress(LlmcError, OSError):
        private_dir(project.root.logs)
        append_line(project.root.log(LOG), line.encode(errors="replace"))


class TickWords:
    """The words of one tick. One that finds nothing to do says nothing."""

    def __init__(self, project: Project, reason: str) -> None:
        self._project = project
        self._reason = reason
        self._has_begun = False
        #: for the event log, once the tick is over
        self._told: list[tuple[str, dict[str, Any]]] = []

    def decided(self, decided: Decided) -> None:
        """What was chosen, before any of it is done."""
        self._told += [
            ("goal_stalled", _about(event, reason=str(event.data.get("reason", ""))))
            for event in decided.change.events
            if event.type == "assignment.stalled"
        ]
        for action in decided.actions:
            self._say(f"chose {action.purpose} {action.work_node_id} ({action.mode}, {action.dispatch_id})")

    def outcome(self, action: Action, result: Result, text: str) -> None:
        self._say(f"outcome of {action.dispatch_id}: {text}")
        sent = {"purpose": action.purpose, "mode": action.mode, "result": result}
        self._told.append(("goal_acted", _about(action, **sent, dispatch_id=action.dispatch_id)))

    def end(self, sent: list[str]) -> None:
        self._say(f"ended: {', '.join(sent) or 'records brought up to date'}")
        try:
            with self._project.store.transaction() as tx:
                for action, about in self._told:
                    tx.emit(action, **about)
                tx.emit("goal_ticked", reason=self._reason, actions=sent[:MOST_ACTIONS])
        except (LlmcError, OSError) as error:
            log(self._project, f"tick ({self._reason}) is not in the event log: {error}")

    def _say(self, text: str) -> None:
        if not self._has_begun:
            self._has_begun = True
            log(self._project, f"tick ({self._reason}) began")
        log(self._project, f"tick ({self._reason}) {text}")


def _about(one: Event | Action, **more: str) -> dict[str, Any]:
    """Which goal, part and assignment, as the event log names them."""
    return {
        "goal_id": one.goal_id,
        "work_node_id": one.work_node_id,
        "assignment_id": one.assignment_id,
        **{key: str(value) for key, value in more.items()},
    }
