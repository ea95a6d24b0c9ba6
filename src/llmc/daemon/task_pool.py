"""When the task pool command is asked: somebody is idle, nothing is ready, and the last time is long enough ago."""

import asyncio
from collections.abc import Callable

from llmc.auto.hard_failure import HardFailure
from llmc.base.clock import monotonic
from llmc.base.errors import LlmcError
from llmc.base.files import DiskFull
from llmc.base.proc import ShuttingDown
from llmc.records.causes import Cause
from llmc.repo.project import Project
from llmc.tasks import pool_command
from llmc.tasks.queue import TaskQueue
from llmc.tasks.task_list import open_list


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
                pool_command.take_up(project, open_list(project), self._queue.ledger)
                self._taken_up = True
            if self._queue.count_ready() == 0 and not self._queue.unsettled:
                task = pool_command.take_in(project, open_list(project), self._queue.ledger)
                if task is not None:
                    self._say(f"task {task.id} from the task pool: {task.subject[:60]}")
        except pool_command.PoolFailed as error:
            self._fail(HardFailure(error.cause, error.reason, output=error.output))
        except ShuttingDown:
            pass
        except (DiskFull, OSError) as error:
            self._fail(HardFailure(Cause.DISK, f"an answer of the task pool command cannot be kept: {error}"))
        except LlmcError as error:
            self._fail(HardFailure(Cause.COMMAND, f"the task pool command was of no use: {error.message}"))
        finally:
            self._asking = False
