"""What ends auto mode: a failure that trying again cannot mend."""

from llmc.base.names import NO_TASK, TaskKey
from llmc.records.causes import Cause


class HardFailure(Exception):
    """Auto mode cannot go on."""

    def __init__(
        self, cause: Cause, reason: str, *, worker: str = "", task: TaskKey = NO_TASK, output: str = ""
    ) -> None:
        super().__init__(reason)
        self.cause = cause
        self.reason = reason
        self.worker = worker
        self.task = task
        self.output = output
