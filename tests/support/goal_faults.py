"""A goal under fire: ticks and workers in processes that are killed or fail at a named point, then resume."""

import contextlib
import json
import multiprocessing
import os
import random
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from llmc.base import faults
from llmc.goals import goals, work
from llmc.goals.model import GoalStatus, Result
from llmc.goals.runner import Runner
from llmc.tasks.claude_files import open_files
from tests.support.goal_workshop import GOAL, Clock, Workshop, fail

FORK = multiprocessing.get_context("fork")
POINTS = (
    "goals.write",
    "goals.dispatch",
    "goals.spawn",
    "goals.withdraw",
    "goals.outcome",
    "claim.ledger",
    "claim.file",
    "claim.complete",
    "claim.release",
    "state.write",
    "state.replace",
)
#: a crash between a message's intent and its outcome; here the fleet needs a session, not simulated workers
SENDING = (
    *(
        f"submit.{name}:{side}"
        for name in ("persist", "paste", "enter", "receipt", "record")
        for side in ("before", "after")
    ),
    *(f"goals.{name}:{side}" for name in ("dispatch", "outcome") for side in ("before", "after")),
    # the state has it, but the log does not yet: each write of a message
    *(f"state.replace:after:{number}" for number in range(1, 5)),
)
LEAVES = 4
#: enough for a goal of that size with everything that may go wrong
MOST_ROUNDS = 150
STEP_S = 100.0


@dataclass
class Run:
    """One goal, its dice, and everything ever seen of its task files."""

    directory: Path
    clock: Clock
    seed: int
    shop: Workshop = field(init=False)
    #: by dispatch, the numbers of the files made for it
    made: dict[str, set[str]] = field(default_factory=dict)
    struck: bool = False

    def __post_init__(self) -> None:
        self.shop = Workshop(self.directory, LEAVES, max_in_progress=3, min_resend_interval=60.0)
        self.dice = random.Random(self.seed)
        #: who fails how often before the work is done, who asks, and when the goal is paused
        self.troubles = {
            "fails": {f"S1.1.{self.dice.randint(1, LEAVES)}": self.dice.choice((0, 1, 3))},
            "asks": f"S1.1.{self.dice.randint(1, LEAVES)}" if self.dice.random() < 0.5 else "",
            "paused": self.dice.randint(1, 6) if self.dice.random() < 0.5 else 0,
        }

    def drive(self, fault: str) -> None:
        """With the fault until it strikes, then without; until the goal is completed."""
        for number in range(1, MOST_ROUNDS + 1):
            self.clock.now += STEP_S
            self._person(number)
            if not self._in_a_process("" if self.struck else fault):
                self.struck = True
            self._note()
            if self.shop.view.goal.status is GoalStatus.COMPLETED:
                return
        raise AssertionError(f"not completed\n{self._story()}")

    def _in_a_process(self, fault: str) -> bool:
        """A few ticks and steps of a worker; returns whether they completed."""
        child = FORK.Process(target=_work, args=(self, fault))
        child.start()
        child.join(60)
        assert child.exitcode in (0, -signal.SIGKILL, 3), child.exitcode
        return child.exitcode == 0

    def _person(self, number: int) -> None:
        if number == self.troubles["paused"]:
            goals.pause(self.shop.project, GOAL)
        elif self.shop.view.goal.status is GoalStatus.PAUSED:
            goals.resume(self.shop.project, GOAL)
        for question in work.open_questions(self.shop.project):
            work.answer(self.shop.project, question.id, "Blue")

    def _note(self) -> None:
        for task in self.shop.tasks().values():
            if task.dispatch:
                self.made.setdefault(task.dispatch, set()).add(str(task.id))
        for row in self.ledger_rows():
            if row["action"] == "claimed" and row.get("dispatch"):
                self.made.setdefault(row["dispatch"], set()).add(row["task"])

    def ledger_rows(self) -> list[dict[str, str]]:
        path = self.shop.project.root.tasks_ledger
        return (
            [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
            if path.exists()
            else []
        )

    def check(self) -> None:
        """No intent is lost, and nothing was done twice."""
        self._note()
        view = self.shop.view
        sent = [d for a in view.assignments.values() for d in a.dispatch_history]
        unsettled = [d for d in sent if d.result is Result.PENDING]
        assert not unsettled, f"lost: {unsettled}"
        assert not [a for a in view.assignments.values() if a.pending]
        twice = {dispatch: files for dispatch, files in self.made.items() if len(files) > 1}
        assert not twice, f"done twice: {twice}\n{self._story()}"
        known = {d.dispatch_id for d in sent}
        assert set(self.made) <= known, "a file without an intent"
        of_leaf = {
            d.dispatch_id: a.work_node_id for a in view.assignments.values() for d in a.dispatch_history
        }
        task_leaf = {task: of_leaf[dispatch] for dispatch, files in self.made.items() for task in files}
        landed = Counter(task_leaf[row["task"]] for row in self.ledger_rows() if row["action"] == "completed")
        assert landed == Counter({f"S1.1.{n}": 1 for n in range(1, LEAVES + 1)}), (landed, self._story())
        asked = Counter(row["dispatch_id"] for row in self.shop.told("goal_asked"))
        outcomes = Counter(row["dispatchId"] for row in self.shop.events("dispatch.ok"))
        assert all(count == 1 for count in outcomes.values()), outcomes
        assert set(asked) <= known
        assert all(count == 1 for count in asked.values()), f"notified twice: {asked}\n{self._story()}"

    def _story(self) -> str:
        with self.shop.store.reading() as found:
            lines = [f"{e.ts:.0f} {e.type} {e.work_node_id} {e.data}" for _, e in found.events()]
        log = self.shop.project.root.log("goals")
        return "\n".join([str(self.troubles), *lines, log.read_text() if log.exists() else ""])


def _work(run: Run, fault: str) -> None:
    """In the child: its memory is gone when it exits."""
    faults._passed.clear()
    os.environ.pop("LLMC_FAULT", None)
    if fault:
        os.environ["LLMC_FAULT"] = fault
    shop = run.shop
    shop.runner = Runner(shop.project)
    shop.source = open_files(shop.project)
    with contextlib.suppress(faults.FaultInjected):
        _begin_again(shop)
        for _ in range(3):
            shop.tick()
            _one_task(run)
    os._exit(3 if fault and _has_struck(fault) else 0)


def _has_struck(fault: str) -> bool:
    """Including one for which the tick recorded an outcome."""
    name, side, _, turn = fault.split(":")
    return faults._passed[name, side] >= int(turn)


def _begin_again(shop: Workshop) -> None:
    """As auto mode starts: what a worker had when its daemon died is released."""
    for claim in tuple(shop.source.books().claims.values()):
        shop.source.release(claim, "the daemon was gone")
    shop.source.settle()


def _one_task(run: Run) -> None:
    """A worker takes the next task, and does it, fails, or asks."""
    shop = run.shop
    taken = shop.take()
    if taken is None:
        return
    task, claim = taken
    leaf = task.subject.partition(":")[0]
    failures = run.troubles["fails"]
    assert isinstance(failures, dict)
    rows = run.ledger_rows()
    of_leaf = [
        row for row in rows if row["action"] == "claimed" and str(row.get("subject", "")).startswith(leaf)
    ]
    tried = {row["task"] for row in of_leaf}
    failed = sum(row["action"] == "failed" and row["task"] in tried for row in rows)
    if failed < failures.get(leaf, 0):
        fail(shop, claim)
    elif leaf == run.troubles["asks"] and "Blue" not in task.description:
        shop.source.release(claim, "Which colour?", hold="blocked")
    else:
        shop.complete(claim)
