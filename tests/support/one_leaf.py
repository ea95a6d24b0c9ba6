"""One leaf of a goal under the rules, step by step: decisions are stored, and their outcomes reported."""

from msgspec.structs import replace
from msgspec.structs import replace as replaced

from llmc.goals.drive.decide import Decided, decide
from llmc.goals.drive.intents import outcome
from llmc.goals.drive.ladder import Policy, session_key
from llmc.goals.drive.liveness import Report, Run, Signals
from llmc.goals.model import Assignment, Change, Crystallization, Event, Goal, GoalView, Node, Result
from tests.support.goal_world import START, applied, goal, plan


class OneLeaf:
    """The world with a single leaf, S1.1.1, in which the test says what is observed."""

    def __init__(self, policy: Policy | None = None, *, kept: Goal | None = None, **fields: object) -> None:
        self.policy = policy or Policy()
        nodes = plan(1, 1, 1)
        nodes["S1.1.1"] = replace(nodes["S1.1.1"], **fields)
        self.view = GoalView(kept or goal(), nodes)
        self.now = START
        self.numbers = 0
        self.events: list[Event] = []
        self.crystals: dict[str, Crystallization] = {}
        self.decided = Decided(Change())

    def ids(self) -> str:
        self.numbers += 1
        return f"D-{self.numbers}"

    def keep(self, change: Change) -> None:
        self.view = applied(self.view, change)
        self.events.extend(change.events)
        self.crystals.update({crystal.work_node_id: crystal for crystal in change.crystallizations})

    def look(self, seen: Signals | None = None, *, after: float = 0.0, **more: object) -> list[str]:
        """Time passes, something is observed, and a decision is made; returns the purposes of the actions."""
        self.now += after
        if seen is not None:
            # a test may pass only the words: then they were said just now
            said = tuple(r if isinstance(r, Report) else Report(self.now, r) for r in seen.reports)
            seen = replaced(seen, reports=said)
        signals = dict.fromkeys(self.view.assignments, seen) if seen is not None else {}
        self.decided = decide(
            self.view,
            signals,
            self.policy,
            self.now,
            self.ids,
            crystals=self.crystals,
            **more,  # type: ignore[arg-type]
        )
        self.keep(self.decided.change)
        return [action.purpose for action in self.decided.actions]

    def ended(self, result: Result = Result.ACCEPTED, run_id: str = "") -> None:
        """The outcome of the last actions."""
        for action in self.decided.actions:
            self.keep(outcome(self.view, action.dispatch_id, result, self.now, self.policy, run_id=run_id))

    def begin(self) -> "OneLeaf":
        """The work is sent, accepted, and taken by a worker, at time zero."""
        assert self.look() == ["work"]
        self.ended(run_id="17")
        return self

    @property
    def one(self) -> Assignment:
        return next(iter(self.view.assignments.values()))

    @property
    def node(self) -> Node:
        return self.view.nodes["S1.1.1"]

    def types(self) -> list[str]:
        return [event.type for event in self.events]


def seen(**fields: object) -> Signals:
    """A session that exists and says nothing: its turn is over."""
    kept: dict[str, object] = {
        "run_id": "17",
        "run": Run.ENDED,
        "session_key": session_key("auto", "auto-1"),
        "session_id": "s-1",
        "reachable": True,
        "messages": (),
        **fields,
    }
    return Signals(**kept)  # type: ignore[arg-type]
