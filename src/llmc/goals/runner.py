"""The goal tick: observe, decide, store the intents, act, record the outcome.

One tick at a time per root, in the daemon or by `llmc goal tick`. Failures go to goals.log and affect nothing else.
"""

import contextlib
import os
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from llmc.base import locks
from llmc.base.clock import monotonic, now_unix
from llmc.base.errors import TROUBLE, LlmcError, NotFound, Refused, StateError
from llmc.base.faults import step as fault_step
from llmc.base.locks import Rank
from llmc.goals import dispatch, planning
from llmc.goals.desk import Aside, Desk
from llmc.goals.drive import goal_end, words
from llmc.goals.drive.decide import Decided, decide, in_order, orphans, room_beside
from llmc.goals.drive.intents import DIAGNOSE, REPLAN, Action, Room, outcome
from llmc.goals.drive.ladder import Policy
from llmc.goals.drive.liveness import Signals
from llmc.goals.drive.moves import settled
from llmc.goals.goals import GoalSpending, log, open_store, over_budget, tell
from llmc.goals.model import Asking, Assignment, Change, Event, GoalStatus, GoalView, Result
from llmc.goals.plan.plan import Shape
from llmc.goals.signals import Observer
from llmc.goals.store.goal_store import AnyGoalStore
from llmc.goals.ticks import Ticked, TickRecord, write_tick
from llmc.repo.project import Project
from llmc.workers.rules import clock_jump

#: a longer tick leaves the rest to the next one
MOST_TICK_S = 20.0
#: the shortest interval that tells a clock jump from a busy machine
LEAST_INTERVAL_S = 5.0
#: entries of the event `goal_ticked`
MOST_ACTIONS = 50


class TickWords:
    """Logs one tick; an idle tick logs nothing."""

    def __init__(self, project: Project, reason: str) -> None:
        self._project = project
        self._reason = reason
        self._has_begun = False
        self._told: list[tuple[str, dict[str, Any]]] = []

    def decided(self, decided: Decided) -> None:
        """Log the decided actions before they run."""
        self._told += [
            ("goal_stalled", _about(event, reason=str(event.data.get("reason", ""))))
            for event in decided.change.events
            if event.type == "assignment.stalled"
        ]
        for action in decided.actions:
            what = words.sent_words(action.purpose, action.mode)
            self._say(f"next step for {action.work_node_id}: {what} ({action.dispatch_id})")

    def outcome(self, action: Action, result: Result, text: str) -> None:
        self._say(f"outcome of {action.dispatch_id}: {text}")
        sent = {"purpose": action.purpose, "mode": action.mode, "result": result}
        self._told.append(("goal_acted", _about(action, **sent, dispatch_id=action.dispatch_id)))

    def end(self, sent: list[str]) -> None:
        self._say(f"ended: {', '.join(sent) or 'records updated'}")
        try:
            with self._project.store.transaction() as tx:
                for action, about in self._told:
                    tx.emit(action, **about)
                tx.emit("goal_ticked", reason=self._reason, actions=sent[:MOST_ACTIONS])
        except (LlmcError, OSError) as error:
            log(self._project, f"tick ({self._reason}) could not be written to the event log: {error}")

    def _say(self, text: str) -> None:
        if not self._has_begun:
            self._has_begun = True
            log(self._project, f"tick ({self._reason}) started")
        log(self._project, f"tick ({self._reason}) {text}")


def _about(one: Event | Action, **more: str) -> dict[str, Any]:
    """Ids for the event log."""
    return {
        "goal_id": one.goal_id,
        "work_node_id": one.work_node_id,
        "assignment_id": one.assignment_id,
        **{key: str(value) for key, value in more.items()},
    }


class _Tick(Struct):
    words: TickWords
    store: AnyGoalStore
    policy: Policy
    now: float
    room: Room
    ends_at: float
    granted_until: float | None
    sent: list[str] = field(default_factory=list)
    dues: list[float] = field(default_factory=list)
    changed: bool = False


class Runner:
    """Runs ticks; keeps what need not be read again: unchanged goals, and log positions."""

    def __init__(self, project: Project, aside: Aside | None = None) -> None:
        """`aside`: runs planners in the background; None: within the tick."""
        self._project = project
        self._aside = aside
        self._observer: Observer | None = None
        self._spending = GoalSpending()
        self._store: AnyGoalStore | None = None
        self._desk = Desk()
        self._policy: Policy | None = None
        self._ticked: tuple[float, float] | None = None
        self._granted_until: float | None = None
        self._has_lease = False

    def tick(self, project: Project, reason: str) -> Ticked:
        """Never raises: failures go to the log."""
        self._project = project
        began = monotonic()
        try:
            with locks.lock(project.root.lock("goals"), Rank.TICK, timeout_s=1.0):
                done = self._tried(reason)
                self._leave_mark(began, reason, done)
        except TROUBLE as error:  # such as a tick in another process
            done = Ticked(False, problem=dispatch.in_words(error))
        if done.problem:
            log(project, f"tick ({reason}) failed: {done.problem}")
        return done

    def _tried(self, reason: str) -> Ticked:
        try:
            return self._tick(reason)
        except Exception as error:
            if not isinstance(error, LlmcError):
                self._forget()
            return Ticked(False, problem=dispatch.in_words(error))

    def _leave_mark(self, began: float, reason: str, done: Ticked) -> None:
        """Record the tick, for `llmc status` and for the command that requested it."""
        if done.did_work:
            with contextlib.suppress(LlmcError, OSError), self._opened().reading() as found:
                self._desk.read(found)
        write_tick(
            self._project,
            TickRecord(
                began_monotonic=began,
                ended_at=now_unix(),
                pid=os.getpid(),
                reason=reason,
                goals=self._desk.glance(),
                **asdict(done),
            ),
        )
        tell(self._project, self._desk.concerns(), self._desk.views().values())

    def _forget(self) -> None:
        self._desk, self._observer = Desk(), None

    def _tick(self, reason: str) -> Ticked:
        store, policy, now = self._opened(), planning.policy_of(self._project), now_unix()
        tick = _Tick(
            TickWords(self._project, reason),
            store,
            policy,
            now,
            Room(),
            monotonic() + MOST_TICK_S,
            self._granted_until,
        )
        self._collect(tick)
        problem = self._read(tick)
        if problem:
            return Ticked(False, problem=problem)
        if not self._is_ours():
            return Ticked(True)
        if policy != self._policy:
            self._policy = policy
            self._desk.look_at_all()
        self._grant(policy, now)
        tick.granted_until = self._granted_until
        tick.room = room_beside(*self._desk.busy(now), policy)
        problems = [f"{goal_id}: {why}" for goal_id, why in self._desk.unreadable.items()]
        for kept in in_order(self._desk.open_views()):
            goal_id = kept.goal.goal_id
            if not self._desk.is_due(goal_id, tick.now, tick.room):
                continue
            if monotonic() > tick.ends_at:
                tick.dues.append(now)
                break
            try:
                self._attend(tick, kept)
            except Exception as error:
                # One broken goal must not stop the others.
                self._desk.forget(goal_id)
                problems.append(f"{goal_id}: {dispatch.in_words(error)}")
        if tick.sent or tick.changed:
            tick.words.end(tick.sent)
        due = self._desk.next_due(tick.room, now)
        dues = [*tick.dues, *([] if due is None else [due])]
        return Ticked(
            not problems,
            tick.changed,
            tuple(tick.sent),
            problem="; ".join(problems),
            next_due=min(dues, default=None),
        )

    def _is_ours(self) -> bool:
        """Whether this node drives the goals. In a fleet one node does; if it is gone, another takes over."""
        if not self._project.config.fleet.database:
            return True
        from llmc.fleet.nodes import has_lease, membership

        before, self._has_lease = self._has_lease, has_lease(membership(self._project), "goals")
        if self._has_lease and not before:
            self._desk.look_at_all()
        return self._has_lease

    def _opened(self) -> AnyGoalStore:
        """The store, kept between ticks: a new one would check the whole file again."""
        wanted = open_store(self._project)
        if self._store is not None and self._store.name != wanted.name:
            self._store = None
            self._forget()
        self._store = self._store or wanted
        return self._store

    def _collect(self, tick: _Tick) -> None:
        for action, done in self._aside.ended() if self._aside is not None else ():
            with contextlib.suppress(NotFound):  # the goal was deleted meanwhile
                self._told(tick, action, done)

    def _read(self, tick: _Tick) -> str:
        """Read what changed; returns why no goal may be driven, or ""."""
        store = tick.store
        with store.reading() as found:
            mode = found.safe_mode()
            if mode is not None:
                return f"goals are stopped in safe mode because llmc found the goal database damaged and moved it to {mode.file}; to resume: llmc goal safe-mode --clear"
            if store.damage:
                return store.damage
            if not self._desk.read(found):
                return ""
            try:
                open_ = found.open_assignments()
            except StateError:  # in an unreadable goal, which is reported anyway
                return ""
        change = orphans(open_, self._desk.goals(), tick.now)
        if not change.is_empty():
            store.apply(change)
            tick.changed = True
        return ""

    def _grant(self, policy: Policy, now: float) -> None:
        """After a clock jump or suspend, ignore inactivity for one full idle limit."""
        before, self._ticked = self._ticked, (monotonic(), now)
        if before is None:
            return
        interval_s = max(LEAST_INTERVAL_S, policy.tick_every_s)
        why = clock_jump(interval_s, monotonic() - before[0], now - before[1])
        if why:
            self._granted_until = now + policy.idle_after_s
            log(
                self._project,
                f"{why.replace('patrol', 'the tick')}; llmc ignores inactivity for the next {policy.idle_after_s:g} s",
            )

    def _attend(self, tick: _Tick, view: GoalView) -> None:
        """Observe, decide, store the intents, act; decide again if messages are needed first."""
        goal_id = view.goal.goal_id
        if self._is_over_budget(tick, view):
            return
        due = self._ask_of_goal(tick, view)
        if goal_end.wants_check(view):
            deed = partial(dispatch.check_criteria, self._project, tick.store, goal_id)
            self._run(tick, dispatch.check_action(goal_id), deed)
        watched = [view.assignments[one] for one in self._desk.watched(goal_id)]
        signals = self._observed(watched)
        decided = self._decided(tick, view, signals, self._desk.shape(goal_id))
        if decided.wants_samples:
            stale = [one for one in watched if one.assignment_id in decided.wants_samples]
            signals |= self._observed(stale, samples=decided.wants_samples)
            decided = self._decided(tick, view, signals, self._desk.shape(goal_id))
        if not decided.change.is_empty():
            decided = self._stored(tick, goal_id, signals)
            tick.changed = True
            tick.words.decided(decided)
        tick.room = decided.room
        if due is not None:
            decided = replace(decided, next_due=min(due, decided.next_due or due))
        self._desk.attended(goal_id, decided)
        for action in decided.actions:
            if monotonic() > tick.ends_at:
                break  # the next tick finds the intent
            self._act(tick, action)

    def _observed(self, assignments: list[Assignment], samples: tuple[str, ...] = ()) -> dict[str, Signals]:
        if not assignments:
            return {}
        if self._observer is None:
            self._observer = Observer(self._project)
        seen = self._observer.look(self._project, assignments, samples)
        if self._aside is not None:
            for one in self._aside.assignments() & seen.keys():
                seen[one] = replace(seen[one], delivering=True)
        return seen

    def _decided(
        self, tick: _Tick, view: GoalView, signals: dict[str, Signals], shape: Shape | None = None
    ) -> Decided:
        return decide(
            view,
            signals,
            tick.policy,
            tick.now,
            new_id,
            crystals=self._desk.crystals(view.goal.goal_id),
            shape=shape,
            room=tick.room,
            granted_until=tick.granted_until,
        )

    def _stored(self, tick: _Tick, goal_id: str, signals: dict[str, Signals]) -> Decided:
        """Decide on the current records and store the decision before acting."""
        with tick.store.writing() as tx:
            view = tx.view(goal_id)
            if view is None:
                return Decided(Change())
            decided = self._decided(tick, view, signals)
            tx.apply(settled(view, decided.change, tick.now))
        return decided

    def _act(self, tick: _Tick, action: Action) -> None:
        """Act and record the outcome; an action that could not be tried stays an intent."""
        view = tick.store.view(action.goal_id)
        node = view.nodes.get(action.work_node_id)
        if action.purpose in (REPLAN, DIAGNOSE):
            self._run(tick, action, partial(planning.perform, self._project, tick.store, action))
        else:
            self._told(tick, action, dispatch.perform(self._project, action, view.goal, node))

    def _run(self, tick: _Tick, action: Action, deed: Callable[[], dispatch.Done]) -> None:
        """Run a long action, in the background if possible."""
        if self._aside is None:
            self._told(tick, action, deed())
        elif self._aside.begin(action, deed):
            tick.sent.append(f"{action.purpose} {action.work_node_id or action.goal_id}: started")

    def _told(self, tick: _Tick, action: Action, done: dispatch.Done) -> None:
        what = f"{action.purpose} {action.work_node_id or action.goal_id}"
        if done.result is None:
            tick.dues.append(tick.now + 1.0)
            tick.sent.append(f"{what}: postponed ({done.notes})")
            if not action.assignment_id:  # not stored as an intent
                self._desk.forget(action.goal_id)
            return
        if action.assignment_id:
            with fault_step("goals.outcome"):
                self._write_outcome(tick, action, done)
        tick.changed = True
        tick.sent.append(f"{what}: {done.result}" + (f" ({done.notes})" if done.notes else ""))
        tick.words.outcome(action, done.result, tick.sent[-1])

    def _write_outcome(self, tick: _Tick, action: Action, done: dispatch.Done) -> None:
        def write(view: GoalView) -> Change:
            assert done.result is not None
            now, result = now_unix(), Result(done.result)
            change = outcome(view, action.dispatch_id, result, now, tick.policy, done.notes, done.run_id)
            return settled(view, change, now)

        tick.store.update(action.goal_id, write)

    def _ask_of_goal(self, tick: _Tick, view: GoalView) -> float | None:
        """Notify the user of the goal's own question, or remind them; returns when to remind next, None: never."""
        goal, asks, policy = view.goal, view.goal.asks, tick.policy
        if asks is None or goal.status is not GoalStatus.ACTIVE or asks.told > policy.max_reminders:
            return None
        due = asks.told_at + policy.reminder_every_s if asks.told_at is not None else tick.now
        if due > tick.now:
            return due
        where = goal.origin.origin_delivery_context
        dispatch_id = f"{goal.goal_id}-{asks.reason.kind}-{asks.since:.3f}-{asks.told}"
        text = words.goal_question_text(goal, asks.reason, asks.told)
        try:
            how = dispatch.how_told(self._project, where)
            # Notify first, once per id; then count.
            dispatch.notify_user(self._project, goal.goal_id, dispatch_id, text, asks.since, where)
        except Refused as error:
            how = dispatch.in_words(error)
        tick.store.update(goal.goal_id, partial(_told_once, asks=asks, now=tick.now, how=how))
        tick.sent.append(f"question from {goal.goal_id}: {how}")
        tick.changed = True
        return tick.now + policy.reminder_every_s if asks.told < policy.max_reminders else None

    def _is_over_budget(self, tick: _Tick, view: GoalView) -> bool:
        """Pause a goal that is over budget, and notify the user once."""
        goal = view.goal
        if not goal_end.is_limited(goal):
            return False
        spent = self._spending.of(self._project, view).total
        why = goal_end.used_up(goal, spent)
        if not why:
            return False
        # Notify before pausing, once per id: after a crash in between, nothing else would.
        dispatch_id, text = goal_end.budget_notice(goal, spent)
        where = goal.origin.origin_delivery_context
        dispatch.notify_user(self._project, goal.goal_id, dispatch_id, text, goal.created_at, where)
        over_budget(self._project, goal, spent)
        tick.store.update(goal.goal_id, lambda now_view: goal_end.pause(now_view.goal, spent, tick.now))
        tick.sent.append(f"paused {goal.goal_id}: {why}")
        tick.changed = True
        return True


def _told_once(view: GoalView, asks: Asking, now: float, how: str) -> Change:
    """Count a notification; nothing if the question changed."""
    if view.goal.asks is None or view.goal.asks.since != asks.since:
        return Change()
    told = replace(view.goal.asks, told=asks.told + 1, told_at=now)
    data = {"kind": asks.reason.kind, "times": told.told, "notes": how}
    return Change(goal=replace(view.goal, asks=told), events=(view.goal.event("goal.asked", now, data),))


def new_id() -> str:
    return secrets.token_hex(8)
