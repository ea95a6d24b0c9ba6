"""Orders from browsers, as jobs. Each runs in its own thread; its steps can be watched, and its outcome stays readable.

Only one job about the same thing runs at a time; two browsers that give the same order share one job.
"""

import secrets
import threading
from collections.abc import Callable

from llmc.api.said import BAD, Act, Said
from llmc.base.clock import now_unix
from llmc.base.errors import NotFound, Refused

#: how many ended jobs stay readable
KEPT = 200


class Job:
    """An order and its progress."""

    def __init__(self, about: str, worker: str, command: str, by: str) -> None:
        self.id = secrets.token_hex(6)
        #: only one order about the same thing runs at a time
        self.about = about
        #: "" if the order is not for one worker
        self.worker = worker
        self.command = command
        self.by = by
        self.started_unix = now_unix()
        self.steps: list[tuple[float, str]] = []
        #: None while it runs
        self.said: Said | None = None


class Jobs:
    def __init__(self, tell: Callable[[Job], None]) -> None:
        """`tell` is called in the job's thread after each step."""
        self._tell = tell
        self._jobs: dict[str, Job] = {}
        self._turn = threading.Lock()

    def start(self, about: str, worker: str, command: str, act: Act, by: str) -> Job:
        """Start an order, or return it if it already runs. Refused while another order about the same thing runs."""
        with self._turn:
            running = next(
                (job for job in self._jobs.values() if job.said is None and job.about == about), None
            )
            if running is not None:
                if running.command == command:
                    return running
                raise Refused(
                    f"{about} is busy: {running.command}",
                    hint="Wait until that command has finished, then try again.",
                )
            job = Job(about, worker, command, by)
            self._jobs[job.id] = job
            ended = [one.id for one in self._jobs.values() if one.said is not None]
            for old in ended[: max(0, len(ended) - KEPT)]:
                del self._jobs[old]
        thread = threading.Thread(target=self._run, args=(job, act), name=f"job {job.id}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            del self._jobs[job.id]  # else it would be busy forever
            raise Refused(f"cannot run the command now: {error}", hint="Try again in a moment.") from error
        return job

    def _run(self, job: Job, act: Act) -> None:
        def show(step: str) -> None:
            job.steps.append((now_unix(), step))
            self._tell(job)

        try:
            job.said = act(show)
        except Exception as error:
            job.said = Said(
                job.command, f"unexpected error: {type(error).__name__}: {error}", now_unix(), BAD
            )
        self._tell(job)

    def get(self, job_id: str) -> Job:
        found = self._jobs.get(job_id)
        if found is None:
            raise NotFound(
                f"no job {job_id[:20]!r}: the job is too old, or the server was restarted",
                hint="Run `llmc events` to see the result.",
            )
        return found

    def latest(self, worker: str) -> Job | None:
        """The running order for a worker, else the last one."""
        ours = [job for job in self.recent(len(self._jobs)) if job.worker == worker]
        return next((job for job in ours if job.said is None), ours[0] if ours else None)

    def recent(self, count: int) -> list[Job]:
        """The latest jobs, newest first; a copy, because pages are made in threads."""
        return list(reversed(self._jobs.values()))[:count]
