"""The daemon as a node of a fleet: sends heartbeats, keeps its leases, and takes over from lost nodes."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import date

from llmc.attention import raising
from llmc.auto import parks
from llmc.auto.auto_run import Run
from llmc.auto.rules.steps import waits_for_answer
from llmc.auto.rules.waiting import is_parked
from llmc.base.clock import monotonic, now_unix
from llmc.base.errors import LlmcError, Refused, Unreachable
from llmc.base.names import PromptId, TaskKey
from llmc.base.proc import ShuttingDown
from llmc.fleet import answers, nodes, sightings
from llmc.fleet.answers import Answer
from llmc.fleet.database import DatabaseGone
from llmc.fleet.nodes import DRAINING, Life, Park, Pulse, Used
from llmc.fleet.rules import ANSWER, Need, Sighting, beat_s, question_for
from llmc.fleet.shared_events import Outbox
from llmc.fleet.statements import FOR_ANSWER
from llmc.landing import post_accept
from llmc.landing.remote import RemoteLanding
from llmc.records.state import AutoState, State
from llmc.records.worker import Cause, Outcome, Spent, Tokens
from llmc.repo.project import Project, agent_for
from llmc.reports.rules.history import ACTIONS
from llmc.sessions.submit import Receipt
from llmc.tasks.shared import open_shared
from llmc.workers import answering

#: the attention item while the database does not answer
DATABASE = "fleet:database"
#: and while nothing lands, because this node cannot run the post-accept command of a lost one
COMMAND = "fleet:post_accept"
#: and for each worker whose question is not asked by a goal on this node
QUESTION = "fleet:question:"


class Node:
    def __init__(
        self,
        project: Project,
        run: Run,
        log: logging.Logger,
        threads: ThreadPoolExecutor,
        heard_again: Callable[[], None],
        current: Callable[[], Project],
        run_post_accepts: Callable[[], None],
        has_use_for_a_task: Callable[[], bool],
    ) -> None:
        """`heard_again`: called when the database answers again, to look for changes that were missed.

        `current`: the project with the current configuration.
        """
        self._project = project
        self._run = run
        self._log = log
        self._threads = threads
        self._heard_again = heard_again
        self._own = nodes.membership(project)
        self._tasks = open_shared(project)
        self._beating = nodes.Beating(self._own, self._tasks.list_name)
        self._client = ""
        self._is_gone = False
        self._is_beating = False
        self._next = 0.0
        self._current = current
        self._run_post_accepts = run_post_accepts
        self._has_use_for_a_task = has_use_for_a_task
        #: only one thread at a time runs commands of lost nodes, and one delivers answers
        self._commands = threading.Lock()
        self._delivering = threading.Lock()
        #: receipts of answers that the database does not have yet
        self._receipts: dict[int, Receipt] = {}
        self._tasks.on_call = self._called
        self._events = Outbox(self._own, project.root.events, ACTIONS)

    def start(self) -> None:
        """Take the node's name; refused while another daemon has it. The first beat comes with the first tick."""
        if self._project.shared is not None:
            RemoteLanding(self._project.shared).agree()
        if self._beating.start():
            self._drain()  # before a task is taken: a daemon that is started again finishes only what it has
        self._client = agent_for(self._project).version()

    def _drain(self) -> None:
        self._run.drain(f"node {self._own.node} is draining")

    def _called(self, reason: str) -> None:
        """Handle a call from another node: the next tick delivers an answer; for a task, the list's watch wakes a worker.

        If no worker here can start the task, call another node.
        """
        if reason == FOR_ANSWER:
            self._next = 0.0
        elif not self._has_use_for_a_task():
            self._threads.submit(self._tasks.call_waiting)

    def tick(self, state: State) -> None:
        """Called once a second, in the daemon's loop."""
        if not self._is_beating and monotonic() >= self._next:
            self._is_beating = True
            self._next = monotonic() + beat_s(self._own.lease_s)
            asyncio.get_running_loop().run_in_executor(self._threads, self._beat, state)

    def _beat(self, state: State) -> None:
        try:
            try:
                self._look(state)
            except DatabaseGone as error:
                self._gone(error)
        except LlmcError as error:
            self._log.info(error.message, extra={"action": "beat_failed", "hint": error.hint})
        except Exception:
            self._log.exception(
                "bug in the node's heartbeat", extra={"action": "beat_failed", "cause": "bug"}
            )
        finally:
            self._is_beating = False

    def _look(self, state: State) -> None:
        pulse = self._beating.beat(self._life(state))
        self._answers()
        self._heed(pulse)
        if not pulse.state:
            self._run.drain(f"node {self._own.node} was removed from the fleet or is running elsewhere")
        elif pulse.state == DRAINING:
            self._drain()
        if pulse.expired:
            for task, node in self._tasks.expire():
                self._run.say(f"released task {task}: node {node} was out of contact for too long")
        self._list_questions(state, pulse)
        if pulse.answers:
            self._start(self._delivering, self._deliver)
        if pulse.ready:
            self._run.on_change()
        if self._run.queue.unsettled:  # also while every worker is busy
            self._run.queue.count_ready()
        self._events.send()
        self._heed_commands(pulse)
        sightings.remember(self._project.root, Sighting(now_unix(), self._own.node, pulse.nodes, pulse.more))

    def _heed_commands(self, pulse: Pulse) -> None:
        """Run the post-accept command of a lost node; until it has finished, nothing lands."""
        project = self._current()
        if project.shared is None:  # config.toml names no database any more
            return
        ledger = project.shared.ledger
        if project.config.auto.post_accept_command:
            for due in post_accept.take_over(project, ledger, {*pulse.due, *pulse.lost}):
                self._run.say(
                    f"running the post-accept command for task {due.task}, which {due.worker} landed"
                )
            if pulse.due or pulse.lost:
                self._start(self._commands, self._run_post_accepts)
        else:
            post_accept.drop(project, ledger, pulse.due)
        self._tell_lost(() if project.config.auto.post_accept_command else pulse.lost)

    def _tell_lost(self, lost: Collection[TaskKey]) -> None:
        tasks = ", ".join(map(str, lost))
        text = f"nothing can land: the post-accept command for task {tasks} did not finish because its node is gone, and this node has no post-accept command"
        about = {"kind": "post_accept", "severity": "blocked", "who": self._own.node, "text": text}
        item = {**about, "next": "llmc config set auto.post_accept_command COMMAND"}
        raising.sync(self._project, (COMMAND,), {COMMAND: item} if lost else {})

    def _list_questions(self, state: State, pulse: Pulse) -> None:
        """List the questions of workers blocked in a plan item, unless this node drives the goals: then the goal asks."""
        wanted = {
            f"{QUESTION}{record.name}": {
                "kind": "question",
                "severity": "blocked",
                "who": record.name,
                "text": record.error_reason or "the worker reported a blocker",
                "next": f"{ANSWER}{record.name}",
            }
            for record in state.workers.values()
            if not pulse.drives and waits_for_answer(record)
        }
        raising.sync(self._project, (QUESTION,), wanted)

    def _start(self, alone: threading.Lock, work: Callable[[], None]) -> None:
        """Run work that may take long in another thread, unless it is already running."""
        if not (self._project.stopping and self._project.stopping()):
            self._threads.submit(self._do, alone, work)

    def _do(self, alone: threading.Lock, work: Callable[[], None]) -> None:
        if not alone.acquire(blocking=False):
            return
        try:
            work()
        except ShuttingDown:
            pass  # another node, or the next daemon, runs the command
        except LlmcError as error:  # the next heartbeat tries again
            self._log.info(error.message, extra={"action": "beat_failed", "hint": error.hint})
        except Exception:
            self._log.exception("bug in the node", extra={"action": "beat_failed", "cause": "bug"})
        finally:
            alone.release()

    def _deliver(self) -> None:
        """Deliver answers that were typed on other nodes."""
        for one in answers.waiting(self._own):
            if one.id not in self._receipts:
                self._receipts[one.id] = self._answer(one)
            told = self._receipts[one.id]
            answers.end(self._own, one.id, told.outcome, told.reason, told.prompt_id, told.elapsed_ms)
            del self._receipts[one.id]
            self._run.say(
                f"{one.worker}: answer from node {one.sender}: {told.outcome} {told.reason}".rstrip()
            )
            self._run.look_again(one.worker, 0.0)

    def _answer(self, one: Answer) -> Receipt:
        """Its id is in the database before it is typed, so a daemon that is started again asks what became of it."""
        prompt_id = PromptId(one.prompt_id)
        try:
            if prompt_id and (known := answering.receipt_of(self._project, one.worker, prompt_id)):
                return known
            if question_for(one.worker, self._needs()) != one.question:
                raise Refused("the question is no longer open")
            prompt_id = prompt_id or answering.new_id(self._project, one.worker)
            if not answers.begin(self._own, one.id, prompt_id):
                raise Refused("the answer is no longer wanted")
            return answering.answer(self._project, one.worker, one.text, prompt_id)
        except Unreachable:
            raise  # the next heartbeat tries again
        except LlmcError as error:
            known = answering.receipt_of(self._project, one.worker, prompt_id) if prompt_id else None
            return known or Receipt(one.worker, PromptId(""), Outcome.REFUSED, 0, error.message)

    def _life(self, state: State) -> Life:
        held = [record.assignment.claim for record in state.workers.values() if record.assignment]
        day, run = self._run.spending.own(self._project)
        return Life(
            claims=[int(claim) for claim in held if claim.isdigit()],
            workers={str(name): str(record.status) for name, record in state.workers.items()},
            client=self._client,
            attention=self._needs(),
            day=date.fromtimestamp(now_unix() - (state.auto.ahead_s or 0.0)).isoformat(),
            used=Used(day.cost, day.tokens.new, run.cost, run.tokens.new),
            park=own_park(state.auto),
        )

    def _needs(self) -> list[Need]:
        return [
            Need(one.severity, one.who, one.text[:500], one.next, one.key, one.kind, one.since_unix)
            for one in raising.current(self._project)
        ]

    def _heed(self, pulse: Pulse) -> None:
        """Apply the usage and the parks of other nodes: budgets and limits apply to the whole account."""
        used = pulse.used
        if pulse.ahead_s is not None:
            parks.compare_clock(self._project, pulse.ahead_s)
        self._run.spending.others = (
            Spent(cost=used.cost_today, tokens=Tokens(input_tokens=used.tokens_today)),
            Spent(cost=used.cost_of_run, tokens=Tokens(input_tokens=used.tokens_of_run)),
        )
        if pulse.park is not None:
            park = pulse.park
            about = park.node, Cause(park.cause), park.reason, park.until_unix
            parks.follow(self._run, self._project, *about)

    def _gone(self, error: DatabaseGone) -> None:
        """Report, once, that the database is gone: no task starts or lands, and the agents finish their turns."""
        if not self._is_gone:
            text = f"{error.message}. No task starts or lands until it responds"
            about = {"kind": "database", "severity": "blocked", "who": self._own.node, "text": text}
            raising.sync(self._project, (DATABASE,), {DATABASE: {**about, "next": "llmc fleet status"}})
            self._is_gone = True
            self._run.say(f"{error.message}; no task starts or lands until it responds")

    def _answers(self) -> None:
        was_gone, self._is_gone = self._is_gone, False
        if was_gone:
            self._run.say("the fleet's database is reachable again")
        watch = self._tasks.newest_watch
        if was_gone or (watch is not None and watch.is_deaf):  # a short outage may hit the watch alone
            self._heard_again()
        raising.sync(self._project, (DATABASE,), {})

    def stop(self) -> None:
        with contextlib.suppress(LlmcError):
            raising.sync(self._project, (COMMAND, QUESTION), {})  # nothing here waits for them now
            self._beating.stop()

    def tell_last_events(self) -> None:
        """Send the last events, after the daemon has logged its end."""
        with contextlib.suppress(LlmcError):
            self._events.send()


def own_park(auto: AutoState) -> Park | None:
    """The park that began on this node. One that follows another node's is not passed on, or it would never end."""
    if not is_parked(auto) or auto.parked_by or auto.parked_cause == Cause.BUDGET or auto.ahead_s is None:
        return None
    return Park(auto.parked_cause, auto.parked_reason, auto.parked_until_unix - auto.ahead_s)
