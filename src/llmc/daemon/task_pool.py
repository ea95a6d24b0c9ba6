"""When the task pool command is asked: somebody is idle, nothing is ready, and the last time is long enough ago."""

import asyncio
from collections.abc import Callable

from llmc.errors import LlmcError
from llmc.services import task_pool
from llmc.services.hard_failure import HardFailure
from llmc.services.project import Project
from llmc.services.task_list import open_list
from llmc.services.task_queue import TaskQueue
from llmc.tools.clock import monotonic
from llmc.tools.files import DiskFull
from llmc.tools.proc import ShuttingDown
from llmc.workers.causes import Cause


class TaskPool:
    def __init__(
        self, queue: TaskQueue, fail: Callable[[HardFailure], None], say: Callable[[str], None]
    ) -> None:
        self._queue = queue
        self._fail = fail
        self._say = say
        self._asking = False
        self._taken_up = False
        self._next = 0.0

    def tick(self, project: Project, is_wanted: bool) -> None:
        """Once a second, in the daemon's loop."""
        if (
            not project.config.auto.task_pool_command
            or not is_wanted
            or self._asking
            or monotonic() < self._next
        ):
            return
        self._asking = True
        self._next = monotonic() + project.config.defaults.patrol_interval_secs
        asyncio.get_running_loop().run_in_executor(None, self._ask, project)

    def _ask(self, project: Project) -> None:
        try:
            if not self._taken_up:
                task_pool.take_up(project, open_list(project), self._queue.ledger)
                self._taken_up = True
            if self._queue.count_ready() == 0 and not self._queue.unsettled:
                task = task_pool.take_in(project, open_list(project), self._queue.ledger)
                if task is not None:
                    self._say(f"task {task.id} from the task pool: {task.subject[:60]}")
        except task_pool.PoolFailed as error:
            self._fail(HardFailure(error.cause, error.reason, output=error.output))
        except ShuttingDown:
            pass
        except (DiskFull, OSError) as error:
            self._fail(HardFailure(Cause.DISK, f"an answer of the task pool command cannot be kept: {error}"))
        except LlmcError as error:
            self._fail(HardFailure(Cause.COMMAND, f"the task pool command was of no use: {error.message}"))
        finally:
            self._asking = False
