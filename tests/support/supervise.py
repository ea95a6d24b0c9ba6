"""A supervisor in its own process; its remediation is a shell command instead of an agent's session.

    python -m tests.support.supervise ROOT COMMAND [GRACE_S]

The command gets the prompt on its standard input; its exit code says whether it fixed anything.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llmc.base.errors import LlmcError
from llmc.cli.overseeing import show
from llmc.doctor import canary
from llmc.repo.project import Project, open_project
from llmc.supervisor import daemon_process, remediation, supervisor
from llmc.supervisor.remediation import Remediation
from llmc.supervisor.rules import decide
from llmc.supervisor.rules.remedy import Outcome
from tests.support.fleet import Fleet, process_state
from tests.support.waiting import wait_until

#: as short as a busy machine allows; a heartbeat comes every 5 seconds
QUICK = {
    "overseer.remediation_prompt": "Fix it.",
    "overseer.check_interval_secs": "0.1",
    "overseer.restart_cooldown_secs": "600",
}


def shim(fleet: Fleet) -> Path:
    """A directory for PATH with an `llmc` that notes its arguments, and reads its environment from a file."""
    folder = fleet.dir / "bin"
    folder.mkdir(exist_ok=True)
    program = folder / "llmc"
    program.write_text(
        f"""#!/bin/sh
echo "$@" >> {fleet.dir}/called
test ! -e {fleet.dir}/broken || {{ echo "llmc: it is broken" >&2; exit 3; }}
test ! -e {fleet.dir}/variables || . {fleet.dir}/variables
exec {sys.executable} -m llmc "$@"
"""
    )
    program.chmod(0o755)
    return folder


class Overseer:
    """The supervisor of a fleet; its output is in `said`."""

    def __init__(self, fleet: Fleet, remedy: str = "", *, grace_s: float = 30, **env: str) -> None:
        self.fleet = fleet
        self.out = fleet.dir / "overseer.out"
        self.prompts = fleet.dir / "prompts"
        argv = ["-m", "llmc", "overseer"]
        if remedy:
            argv = ["-m", "tests.support.supervise", str(fleet.root), remedy, str(grace_s)]
        path = f"{shim(fleet)}:{fleet.env['PATH']}"
        here = str(Path(__file__).parents[2])
        with self.out.open("ab") as sink:
            self.process = subprocess.Popen(
                [sys.executable, *argv],
                cwd=here if remedy else fleet.source,
                env={**fleet.env, "PATH": path, "LLMC_ROOT": str(fleet.root), **env},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        return self.out.read_text()

    @property
    def row(self) -> dict[str, Any]:
        """Its file; empty before it exists."""
        path = self.fleet.root / ".llmc/overseer.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def daemon(self, other_than: int = 0) -> int:
        """The pid of the daemon it watches; 0 before there is one."""
        pid = int((self.row.get("daemon") or {}).get("pid", 0))
        return pid if pid != other_than and self.is_ready(pid) else 0

    def is_ready(self, pid: int) -> bool:
        try:
            found = json.loads((self.fleet.root / ".llmc/daemon.json").read_text())
        except (OSError, ValueError):
            return False
        return bool(found["pid"] == pid and found["ready"])

    def ends(self, timeout_s: float = 60) -> int:
        """Its exit code, once it has exited by itself."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"the supervisor still runs\n{self.said}\n{self.fleet.story()}") from error

    def stop(self, number: int = signal.SIGINT) -> int:
        os.kill(self.process.pid, number)
        return self.ends()

    def freeze(self) -> None:
        """It does nothing until SIGCONT: a signal is sent before it arrives."""
        os.kill(self.process.pid, signal.SIGSTOP)
        wait_until(lambda: process_state(self.process.pid) == "T")

    def close(self) -> None:
        """Stop whatever a failed test left."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class ByCommand:
    """A remediation that runs a shell command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def open_session(self, project: Project, say: Callable[[str], None]) -> str:
        return ""

    def close_session(self, project: Project) -> None:
        pass

    def remediate(
        self,
        project: Project,
        prompt: str,
        *,
        limit_s: float,
        stopping: Callable[[], bool],
        say: Callable[[str], None],
    ) -> Remediation:
        say(decide.ENTERING)
        done = self._run(project, prompt, limit_s, stopping)
        say(decide.outcome(done.outcome, done.duration_s, done.problem))
        return done

    def _run(
        self, project: Project, prompt: str, limit_s: float, stopping: Callable[[], bool]
    ) -> Remediation:
        began, log = time.monotonic(), project.root.logs / "remediation_test.txt"
        argv = ["/bin/sh", "-c", self.command]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(prompt.encode())
            process.stdin.close()
        while process.poll() is None:
            lasted_s = time.monotonic() - began
            if stopping() or lasted_s > limit_s:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                outcome = Outcome.INTERRUPTED if stopping() else Outcome.TIMEOUT
                return Remediation(outcome, lasted_s, "it took too long", log)
            time.sleep(0.02)
        lasted_s = time.monotonic() - began
        if process.returncode:
            return Remediation(Outcome.FAILED, lasted_s, f"exit code {process.returncode}", log)
        return Remediation(Outcome.COMPLETED, lasted_s, "", log)


def told(project: Project, kind: str, title: str, body: str, *, key: str, **facts: Any) -> None:
    """Notifications, where a test can read them."""
    with (project.root.path / "told.jsonl").open("a") as file:
        file.write(json.dumps({"kind": kind, "title": title, "body": body}) + "\n")


if __name__ == "__main__":
    root, command, grace_s = sys.argv[1:4]
    by_command = ByCommand(command)
    for name in ("remediate", "open_session", "close_session"):
        setattr(remediation, name, getattr(by_command, name))
    supervisor.notify = told
    daemon_process.GRACE_S = float(grace_s)
    canary.TURN_S = float(os.environ.pop("TURN_S", canary.TURN_S))
    try:
        sys.exit(supervisor.Supervisor(open_project(root), show).run())
    except LlmcError as error:
        print(f"llmc: {error.message}. {error.hint}")
        sys.exit(error.exit_code)
