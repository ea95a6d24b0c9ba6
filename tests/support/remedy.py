"""A process that does what the supervisor does about a failure: one remediation. SIGTERM is its `stopping`.

python -m tests.support.remedy <root> <limit in seconds> <prompt file> <result file>
"""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import click

from llmc.repo.project import open_project
from llmc.supervisor.remediation import remediate
from llmc.supervisor.rules import decide
from tests.support.fleet import Fleet


def main(root: str, limit_s: str, prompt: str, result: str) -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    said: list[str] = []
    done = remediate(
        open_project(root),
        Path(prompt).read_text(),
        limit_s=float(limit_s),
        stopping=stopping.is_set,
        say=lambda text: said.append(click.style(text, fg=decide.style_of(text) or None)),
    )
    fields = {"outcome": done.outcome, "problem": done.problem, "cause": done.cause, "log": str(done.log)}
    Path(result).write_text(json.dumps({**fields, "duration_s": done.duration_s, "said": said}))


class Remedy:
    """One remediation in its own process."""

    def __init__(self, fleet: Fleet, prompt: str, limit_s: float = 150) -> None:
        self.fleet = fleet
        folder = fleet.dir / f"remedy-{len(list(fleet.dir.glob('remedy-*')))}"
        folder.mkdir()
        (folder / "prompt").write_text(prompt)
        self._result = folder / "result"
        arguments = [str(fleet.root), str(limit_s), str(folder / "prompt"), str(self._result)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.remedy", *arguments],
            cwd=Path(__file__).parents[2],
            env=fleet.env,
            stdin=subprocess.DEVNULL,
        )

    def done(self, timeout_s: float = 180) -> dict[str, Any]:
        """Its outcome."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
            self.process.kill()
            self.process.wait()
        assert code == 0, f"{code}\n{self.story()}"
        found: dict[str, Any] = json.loads(self._result.read_text())
        return found

    def story(self) -> str:
        """The output so far, for a failure message."""
        logs = sorted((self.fleet.root / "logs").glob("remediation_*.txt"))
        events = self.fleet.root / ".llmc/overseer/events.jsonl"
        parts = [path.read_text() for path in [*logs[-1:], events] if path.exists()]
        return "\n".join([*parts, self.fleet.screen("overseer")[-3000:]])


if __name__ == "__main__":
    main(*sys.argv[1:])
