"""The daemon as a node of a fleet: it shows that it lives, keeps its leases, and frees what lost nodes had."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date

from llmc.attention import raising
from llmc.auto import parks
from llmc.auto.auto_run import Run
from llmc.base.clock import monotonic, now_unix
from llmc.base.errors import LlmcError
from llmc.fleet import nodes, sightings
from llmc.fleet.database import DatabaseGone
from llmc.fleet.nodes import Life, Park, Pulse, Used
from llmc.fleet.rules import Need, Sighting, beat_s
from llmc.records.state import State
from llmc.records.worker import Cause, Spent, Tokens
from llmc.repo.project import Project, agent_for
from llmc.tasks.shared import open_shared

#: the attention item while the database does not answer
DATABASE = "fleet:database"


class Node:
    def __init__(
        self,
        project: Project,
        run: Run,
        log: logging.Logger,
        threads: ThreadPoolExecutor,
        heard_again: Callable[[], None],
    ) -> None:
        """`heard_again`: the database answers again, so what was not heard in between has to be looked for."""
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
        #: the end of a park that began on another node
        self._follows = 0.0
        self._is_beating = False
        self._next = 0.0

    def start(self) -> None:
        """Take the node's name; refused while another daemon has it. The first beat comes with the first tick."""
        self._beating.start()
        self._client = agent_for(self._project).version()

    def tick(self, state: State) -> None:
        """Once a second, in the daemon's loop."""
        if not self._is_beating and monotonic() >= self._next:
            self._is_beating = True
            self._next = monotonic() + beat_s(self._own.lease_s)
            asyncio.get_running_loop().run_in_executor(self._threads, self._beat, state)

    def _beat(self, state: State) -> None:
        try:
            self._look(state)
        except DatabaseGone as error:
            self._gone(error)
        except LlmcError as error:
            self._log.info(error.message, extra={"action": "beat_failed", "hint": error.hint})
        except Exception:
            self._log.exception(
                "bug in the heartbeat of the node", extra={"action": "beat_failed", "cause": "bug"}
            )
        finally:
            self._is_beating = False

    def _look(self, state: State) -> None:
        pulse = self._beating.beat(self._life(state))
        self._answers()
        self._heed(pulse)
        if not pulse.state:
            self._run.drain(f"node {self._own.node} was removed from the fleet, or runs elsewhere")
        elif pulse.state == "draining":
            self._run.drain(f"node {self._own.node} is draining")
        if pulse.expired:
            for task, node in self._tasks.expire():
                self._run.say(f"task {task} is free again: node {node} did not renew its lease")
        if pulse.ready:
            self._run.on_change()
        if self._run.queue.unsettled:  # also while every worker is busy
            self._run.queue.count_ready()
        seen = Sighting(now_unix(), self._own.node, pulse.nodes, pulse.more)
        sightings.remember(self._project.root, seen)

    def _life(self, state: State) -> Life:
        held = [record.assignment.claim for record in state.workers.values() if record.assignment]
        day, run = self._run.spending.own(self._project)
        return Life(
            claims=[int(claim) for claim in held if claim.isdigit()],
            workers={str(name): str(record.status) for name, record in state.workers.items()},
            client=self._client,
            attention=[
                Need(one.severity, one.who, one.text[:500], one.next)
                for one in raising.current(self._project)
            ],
            day=date.today().isoformat(),
            used=Used(day.cost, day.tokens.new, run.cost, run.tokens.new),
            park=self._park(state),
        )

    def _park(self, state: State) -> Park | None:
        """A park that began here; one that follows another node's is not told on, or it would never end."""
        auto = state.auto
        own = auto.parked_until_unix != self._follows and auto.parked_cause != Cause.BUDGET
        wait_s = auto.parked_until_unix - now_unix()
        return Park(auto.parked_cause, auto.parked_reason, wait_s) if own and wait_s > 0 else None

    def _heed(self, pulse: Pulse) -> None:
        """Budgets and limits are of the account, whichever node used them."""
        used = pulse.used
        self._run.spending.others = (
            Spent(cost=used.cost_today, tokens=Tokens(input_tokens=used.tokens_today)),
            Spent(cost=used.cost_of_run, tokens=Tokens(input_tokens=used.tokens_of_run)),
        )
        if pulse.park is not None:
            park = pulse.park
            reason = f"node {park.node}: {park.reason}"
            until = parks.follow(self._run, self._project, Cause(park.cause), reason, park.wait_s)
            self._follows = until or self._follows

    def _gone(self, error: DatabaseGone) -> None:
        """Nothing is claimed and nothing lands; the agents finish their turns."""
        if not self._is_gone:
            self._is_gone = True
            self._run.say(f"{error.message}; no task starts or lands until it answers")
            text = f"{error.message}. No task starts or lands until the database answers"
            about = {"kind": "database", "severity": "blocked", "who": self._own.node, "text": text}
            raising.sync(self._project, (DATABASE,), {DATABASE: {**about, "next": "llmc fleet status"}})

    def _answers(self) -> None:
        if self._is_gone:
            self._is_gone = False
            self._run.say("the fleet's database answers again")
            self._heard_again()
        raising.sync(self._project, (DATABASE,), {})

    def stop(self) -> None:
        with contextlib.suppress(LlmcError):
            self._beating.stop()
