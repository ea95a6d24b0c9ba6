"""What ends auto mode: a failure that trying again cannot mend."""

from llmc.workers.causes import Cause


class HardFailure(Exception):
    """Auto mode cannot go on."""

    def __init__(
        self, cause: Cause, reason: str, *, worker: str = "", task_id: str = "", output: str = ""
    ) -> None:
        super().__init__(reason)
        self.cause = cause
        self.reason = reason
        self.worker = worker
        self.task_id = task_id
        self.output = output
