"""A small world for the goals' rules: workers that finish, go silent, fail or ask; deliveries that get lost,
or arrive late or twice; and a process that can be killed between any two steps. Seeded, without any I/O.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from llmc.goals.drive.by_hand import sent_again
from llmc.goals.drive.decide import Decided, decide, full_room
from llmc.goals.drive.intents import Action, outcome
from llmc.goals.drive.ladder import Policy, session_key
from llmc.goals.drive.liveness import Merged, Message, Report, Run, Signals
from llmc.goals.drive.updates import Claim, Update
from llmc.goals.model import (
    Assignment,
    AssignmentStatus,
    BlockedReason,
    Change,
    Crystallization,
    Event,
    Evidence,
    Goal,
    GoalStatus,
    GoalView,
    Mode,
    Node,
    NodeKind,
    NodeStatus,
    Result,
)
from llmc.goals.plan.plan import Shape, shape_of

START = 1_000_000.0
#: how long the user does not check the inbox without being asked
INBOX_S = 40_000.0


def plan(phases: int, tasks: int, subtasks: int, *, chained: bool = True) -> dict[str, Node]:
    """A plan of that size; if chained, phases wait for the previous one, second subtasks for the first."""
    nodes: dict[str, Node] = {}

    def add(node_id: str, kind: NodeKind, parent: str, position: int, deps: tuple[str, ...] = ()) -> None:
        nodes[node_id] = Node(
            goal_id="goal_1",
            node_id=node_id,
            kind=kind,
            parent_id=parent,
            position=position,
            name=f"Part {node_id}",
            objective=f"Do {node_id}",
            acceptance_criteria=(f"{node_id} works",),
            depends_on=deps,
            created_at=START,
            updated_at=START,
        )

    for p in range(1, phases + 1):
        add(f"P{p}", NodeKind.PHASE, "", p, (f"P{p - 1}",) if chained and p > 1 else ())
        for t in range(1, tasks + 1):
            add(f"T{p}.{t}", NodeKind.TASK, f"P{p}", t)
            for s in range(1, subtasks + 1):
                after = (f"S{p}.{t}.{s - 1}",) if chained and s % 2 == 0 else ()
                add(f"S{p}.{t}.{s}", NodeKind.SUBTASK, f"T{p}.{t}", s, after)
    return nodes


def goal(**fields: object) -> Goal:
    kept = {"goal_id": "goal_1", "title": "A goal", "created_at": START, "updated_at": START, **fields}
    return Goal(**kept)  # type: ignore[arg-type]


def applied(view: GoalView, change: Change) -> GoalView:
    """The store's part: the whole change."""
    return GoalView(
        change.goal or view.goal,
        {**view.nodes, **{node.node_id: node for node in change.nodes}},
        {**view.assignments, **{one.assignment_id: one for one in change.assignments}},
    )


def rolled_up(view: GoalView, shape: Shape, now: float) -> GoalView:
    """Parents follow their children, as far as these tests need it."""
    nodes = dict(view.nodes)
    for kind in (NodeKind.TASK, NodeKind.PHASE):
        for node_id, below in shape.children.items():
            done = all(nodes[child].status in (NodeStatus.DONE, NodeStatus.CANCELLED) for child in below)
            wanted = NodeStatus.DONE if done else NodeStatus.TODO
            if nodes[node_id].kind is kind and nodes[node_id].status is not wanted:
                nodes[node_id] = replace(nodes[node_id], status=wanted, updated_at=now)
    finished = all(node.status is NodeStatus.DONE for node in nodes.values() if node.kind is NodeKind.PHASE)
    kept = view.goal
    if finished and kept.status in (GoalStatus.ACTIVE, GoalStatus.PAUSED):
        kept = replace(kept, status=GoalStatus.COMPLETED)
    return GoalView(kept, nodes, view.assignments)


class Killed(Exception):
    """The process died here."""


@dataclass
class Job:
    """One run of a leaf, started by one dispatch."""

    dispatch_id: str
    assignment_id: str
    leaf: str
    made: float
    state: Run = Run.WAITING
    behaviour: str = "finish"
    worker: str = ""
    claimed: float | None = None
    ended: float | None = None
    wrote: float | None = None
    committed: float | None = None
    asks: float | None = None
    merged: float | None = None
    withdrawn: bool = False
    reports: tuple[Report, ...] = ()


@dataclass
class Habits:
    """What can go wrong, and how often (0 to 1)."""

    silent: float = 0.0
    deaf: float = 0.0
    fails: float = 0.0
    asks: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    refused: float = 0.0
    doubled: float = 0.0
    killed: float = 0.0
    #: the user pauses or resumes the goal
    paused: float = 0.0
    #: a worker reports, truthfully or not
    reports: float = 0.0
    person_after: float = 3_000.0


@dataclass
class World:
    """The store, the workers, and the counters."""

    view: GoalView
    policy: Policy
    habits: Habits
    seed: int
    workers: int = 3
    now: float = START
    rng: random.Random = field(init=False)
    shape: Shape = field(init=False)
    jobs: dict[str, Job] = field(default_factory=dict)
    crystals: dict[str, Crystallization] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    #: how often each leaf was started, and how often each dispatch had an effect
    begun: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)
    told: list[tuple[float, str, str]] = field(default_factory=list)
    #: dispatches since the last progress, by assignment; the maximum ever
    spent: Counter[str] = field(default_factory=Counter)
    most_spent: int = 0
    questions: Counter[str] = field(default_factory=Counter)
    reminders: Counter[str] = field(default_factory=Counter)
    most_reminders: int = 0
    nudged: set[str] = field(default_factory=set)
    kills: int = 0
    #: places where it could have been killed, and the one where it is
    points: int = 0
    kill_at: int = 0
    numbers: int = 0
    asked_samples: int = 0
    #: last complete tick while the goal was active; lost ticks delay finding a stall by as much
    ticked: float = START
    finding_times: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.shape = shape_of(self.view.nodes)

    def ids(self) -> str:
        self.numbers += 1
        return f"id-{self.numbers:06}"

    # --- the workers

    def live(self) -> None:
        """What happens until the next tick."""
        busy = sum(job.state is Run.IN_FLIGHT for job in self.jobs.values())
        for job in self.jobs.values():
            if job.state is Run.WAITING and busy < self.workers and self.rng.random() < 0.9:
                busy += 1
                self._claim(job)
            elif job.state is Run.IN_FLIGHT:
                job.reports = self.report(job)
                self._work(job)
            elif job.state is Run.ENDED and job.merged is None:
                self._rest(job)

    def _claim(self, job: Job) -> None:
        job.state, job.claimed, job.wrote = Run.IN_FLIGHT, self.now, self.now
        job.worker = f"auto-{1 + len([j for j in self.jobs.values() if j.claimed]) % self.workers}"
        self.begun[job.leaf] += 1
        self.effects[job.dispatch_id] += 1
        chance = self.rng.random()
        for name in ("silent", "deaf", "fails", "asks"):
            chance -= getattr(self.habits, name)
            if chance < 0:
                job.behaviour = name
                break

    def _work(self, job: Job) -> None:
        if job.asks is not None:
            return
        job.wrote = self.now
        if self.rng.random() < 0.5:
            return
        if job.behaviour == "fails":
            job.state, job.ended = Run.FAILED, self.now
        elif job.behaviour in ("silent", "deaf"):
            job.state, job.ended = Run.ENDED, self.now
        elif job.behaviour == "asks":
            job.asks = self.now
        elif job.committed is None:
            job.committed = self.now
        else:
            job.merged = self.now
            job.state, job.ended = Run.ENDED, self.now

    def _rest(self, job: Job) -> None:
        """A stopped worker continues when it gets a message, unless it is deaf."""
        if job.dispatch_id in self.nudged and job.behaviour == "silent":
            self.nudged.discard(job.dispatch_id)
            job.state, job.ended, job.behaviour, job.wrote = Run.IN_FLIGHT, None, "finish", self.now

    # --- what is seen of them

    def job_of(self, assignment: Assignment) -> Job | None:
        given = [d.dispatch_id for d in assignment.dispatch_history if d.is_instruction]
        merged = [self.jobs[d] for d in given if d in self.jobs and self.jobs[d].merged]
        kept = [self.jobs[d] for d in given if d in self.jobs and not self.jobs[d].withdrawn]
        found = merged or kept
        return found[-1] if found else None

    def signals(self, assignment: Assignment, *, sampled: bool = False) -> Signals:
        job = self.job_of(assignment)
        if job is None:
            return Signals(messages=() if sampled else None)
        messages = (Message("m1", "assistant", job.wrote, "working on it"),) if job.wrote else ()
        asks = BlockedReason(kind="question", text="A or B?", question="A or B?", options=("A", "B"))
        return Signals(
            run_id=job.dispatch_id,
            run=job.state,
            run_ended_at=job.ended,
            run_error="it crashed" if job.state is Run.FAILED else "",
            session_key=session_key("auto", job.worker) if job.worker else "",
            session_id=f"session-{job.dispatch_id}" if job.worker else "",
            reachable=bool(job.worker) and job.state is not Run.FAILED,
            session_updated_at=job.wrote,
            agent_wrote_at=job.wrote,
            committed_at=job.committed,
            waiting=asks if job.asks and job.state is Run.IN_FLIGHT else None,
            waiting_since=job.asks,
            merged=self._merge(job),
            reports=job.reports,
            messages=messages if sampled else None,
        )

    def _merge(self, job: Job) -> Merged | None:
        if job.merged is None:
            return None
        return Merged(job.leaf.encode().hex(), job.merged, Evidence(files_touched=(f"{job.leaf}.py",)))

    # --- the tick

    def tick(self) -> Decided | None:
        """One tick as the runner does it; a kill ends it anywhere."""
        self.now += self.policy.tick_every_s
        self.live()
        self.answer()
        self.pause()
        try:
            return self._tick()
        except Killed:
            self.kills += 1
            return None

    def look(self, sampled: frozenset[str] = frozenset()) -> dict[str, Signals]:
        return {
            name: self.signals(one, sampled=name in sampled) for name, one in self.view.assignments.items()
        }

    def decide(self, signals: dict[str, Signals], now: float | None = None) -> Decided:
        at = self.now if now is None else now
        room = full_room([self.view], self.policy, at)
        return decide(
            self.view, signals, self.policy, at, self.ids, crystals=self.crystals, room=room, shape=self.shape
        )

    def _tick(self) -> Decided:
        decided = self.decide(signals := self.look())
        if decided.wants_samples:
            self.asked_samples += len(decided.wants_samples)
            decided = self.decide(signals := self.look(frozenset(decided.wants_samples)))
        self.may_kill()
        self.keep(decided.change)
        self.check_same_again(signals)
        self.may_kill()
        for action in decided.actions:
            result, run_id = self.perform(action)
            self.may_kill()
            self.keep(outcome(self.view, action.dispatch_id, result, self.now, self.policy, run_id=run_id))
            self.may_kill()
        if self.view.goal.status is GoalStatus.ACTIVE:
            self.ticked = self.now
        if self.rng.random() < 0.1:
            self.check_until_due()
        return decided

    def may_kill(self) -> None:
        self.points += 1
        if self.points == self.kill_at or self.rng.random() < self.habits.killed:
            raise Killed

    def check_same_again(self, signals: dict[str, Signals]) -> None:
        """The same facts at the same time require nothing more."""
        again = self.decide(signals)
        assert again.change.is_empty(), (again.change.events, again.actions)
        assert not again.actions

    def check_until_due(self) -> None:
        """Without new facts there is nothing to do before the named time."""
        signals = self.look(frozenset(self.view.assignments))
        decided = self.decide(signals)
        if not decided.change.is_empty():
            return
        due = decided.next_due
        for at in (self.now + 1, (due or self.now + 1e6) - 1):
            assert self.decide(signals, max(at, self.now)).change.is_empty(), (at, due)

    def keep(self, change: Change) -> None:
        """The store takes a change, and the counters are updated."""
        before = self.view.assignments
        self.view = rolled_up(applied(self.view, change), self.shape, self.now)
        self.events.extend(change.events)
        for crystal in change.crystallizations:
            self.crystals[crystal.work_node_id] = crystal
        for one in change.assignments:
            old = before.get(one.assignment_id)
            if old is not None and old.last_progress_at != one.last_progress_at:
                self.spent[one.assignment_id] = 0
        for event in change.events:
            self._count(event)

    def _count(self, event: Event) -> None:
        name = event.assignment_id
        if event.data.get("from") == "blocked":
            self.questions[name] = self.reminders[name] = 0
        if event.type == "assignment.reminded" or (
            event.type == "assignment.escalated" and event.data["attempts"] > 1
        ):
            self.reminders[name] += 1
            self.most_reminders = max(self.most_reminders, self.reminders[name])
        elif event.type == "assignment.escalated":
            self.questions[name] += 1
            assert self.questions[name] == 1, "asked twice in one episode"
            self.spent[name] += 1
        elif event.type == "assignment.resent" or (
            event.type == "dispatch.intended" and event.data["purpose"] != "withdraw"
        ):
            self.spent[name] += 1
        elif event.type == "assignment.stalled":
            self._check_stall(event)
        self.most_spent = max(self.most_spent, self.spent[name])

    def _check_stall(self, event: Event) -> None:
        """No active worker is called stalled; a silent one is found in time."""
        one = self.view.assignments[event.assignment_id]
        job = self.job_of(one)
        if not event.data["reason"].startswith("no activity") or job is None:
            return
        given = [d for d in one.dispatch_history if d.is_instruction][-1]
        answered_at = given.result_at if given.mode is Mode.SEND else None
        signs = (job.wrote, job.ended, job.claimed, job.made, answered_at)
        last = max(at for at in signs if at is not None)
        assert self.now - last >= self.policy.idle_after_s, "a false stall"
        assert job.state is not Run.IN_FLIGHT
        lost_ticks = self.now - self.ticked - self.policy.tick_every_s
        self.finding_times.append(self.now - last - lost_ticks)

    # --- the actions

    def perform(self, action: Action) -> tuple[Result, str]:
        """Do it, or not, and report the result, or not; a dispatch id has an effect once."""
        chance = self.rng.random()
        habits = self.habits
        if chance < habits.lost:
            return Result.TIMEOUT, ""
        if chance < habits.lost + habits.refused:
            return Result.ERROR, ""
        run_id = self._deliver(action)
        if self.rng.random() < habits.doubled:
            self._deliver(action)
        late = habits.lost + habits.refused <= chance < habits.lost + habits.refused + habits.late
        return (Result.TIMEOUT, "") if late else (Result.ACCEPTED, run_id)

    def _deliver(self, action: Action) -> str:
        for former in action.replaces:
            if former in self.jobs and self.jobs[former].merged is None:
                self.jobs[former].withdrawn, self.jobs[former].state = True, Run.ENDED
                self.jobs[former].behaviour = "deaf"
        if action.purpose == "withdraw":
            return ""
        if action.mode is Mode.SPAWN and action.dispatch_id not in self.jobs:
            self.jobs[action.dispatch_id] = Job(
                action.dispatch_id, action.assignment_id, action.work_node_id, self.now
            )
        elif action.mode is Mode.ESCALATE:
            self.told.append((self.now, action.assignment_id, action.text))
        elif action.mode is Mode.SEND:
            self._hear(action)
        return action.dispatch_id if action.mode is Mode.SPAWN else ""

    def _hear(self, action: Action) -> None:
        job = self.job_of(self.view.assignments[action.assignment_id])
        if job is None:
            return
        if action.purpose == "answer":
            job.asks, job.behaviour = None, "finish"
        else:
            self.nudged.add(job.dispatch_id)

    def answer(self) -> None:
        """The user answers a question they were told about, or, if that was lost, found in the inbox."""
        inbox = [(one.updated_at + INBOX_S, name, "") for name, one in self.view.assignments.items()]
        for at, name, _ in (*self.told, *inbox):
            one = self.view.assignments[name]
            if one.status is AssignmentStatus.BLOCKED and self.now - at >= self.habits.person_after:
                self.habits_of_answered(one)
                self.keep(sent_again(self.view, name, "Take A.", self.now))

    def pause(self) -> None:
        """The user changes their mind."""
        turned = {GoalStatus.ACTIVE: GoalStatus.PAUSED, GoalStatus.PAUSED: GoalStatus.ACTIVE}
        wanted = turned.get(self.view.goal.status)
        often = 0.3 if wanted is GoalStatus.ACTIVE else self.habits.paused
        if wanted is not None and self.rng.random() < often:
            self.keep(Change(goal=replace(self.view.goal, status=wanted)))

    def report(self, job: Job) -> tuple[Report, ...]:
        """What a worker reports; its words may differ from one time to the next."""
        if job.state is not Run.IN_FLIGHT or self.rng.random() >= self.habits.reports:
            return job.reports
        said = self.rng.choice((Claim.IN_PROGRESS, Claim.BLOCKED, Claim.DONE))
        return (*job.reports, Report(self.now, Update(status=said, summary=f"word {self.rng.randrange(4)}")))

    def habits_of_answered(self, one: Assignment) -> None:
        """What the user looked into works from now on."""
        job = self.job_of(one)
        if job is not None and job.behaviour == "deaf":
            job.behaviour = "silent"

    # --- the end

    def run(self, ticks: int) -> int:
        """Tick until the goal is completed and nothing is pending; returns the number of ticks."""
        for number in range(ticks):
            self.tick()
            if self.view.goal.status is GoalStatus.COMPLETED and not any(self.owed()):
                return number
        raise AssertionError(f"seed {self.seed}: not completed in {ticks} ticks: {self.unfinished()}")

    def owed(self) -> Iterator[Assignment]:
        return (one for one in self.view.assignments.values() if one.pending)

    def unfinished(self) -> list[str]:
        return [
            f"{one.work_node_id} {one.status} {[(d.purpose, d.result.value) for d in one.dispatch_history]}"
            for one in self.view.assignments.values()
            if one.status is not AssignmentStatus.DONE
        ][:5]
