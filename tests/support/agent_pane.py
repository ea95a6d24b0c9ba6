"""An agent, scripted or real, in a pane of a private tmux server, and what it leaves: hooks, rows, status."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.support.waiting import wait_until

WAIT_S = 15.0
SCRIPTED = (sys.executable, "-P", "-m", "llmc.agents.scripted")
EVENTS = (
    *("SessionStart", "SessionEnd", "UserPromptSubmit", "Stop", "StopFailure", "Notification"),
    *("PermissionRequest", "TaskCreated", "PreToolUse", "PostToolUse", "PostToolUseFailure"),
    *("SubagentStop", "PostCompact"),
)

# One file per event, written completely, then renamed: a reader never sees half of one.
RECORD = 'f="$HOOKS/$(date +%s%N)-$$"; cat >"$f.part" && mv "$f.part" "$f.json"'


class Pane:
    """The agent and its surroundings, all in one temporary directory."""

    def __init__(
        self, root: Path, environ: dict[str, str] | None = None, program: Sequence[str] = SCRIPTED
    ) -> None:
        self.root = root
        self.program = program
        self.config = root / "config"
        self.cwd = root / "work.tree"
        self.hook_dir = root / "hooks"
        self.socket = f"llmc-test-{uuid.uuid4().hex[:12]}"
        self.settings = root / "settings.json"
        self._heard: dict[str, dict[str, Any]] = {}
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(root / "home"),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "CLAUDE_CONFIG_DIR": str(self.config),
            "HOOKS": str(self.hook_dir),
        } | (environ or {})
        for path in (self.cwd, self.hook_dir, root / "home"):
            path.mkdir(exist_ok=True)
        hook = {"type": "command", "command": RECORD, "timeout": 5}
        self.settings.write_text(json.dumps({"hooks": {event: [{"hooks": [hook]}] for event in EVENTS}}))

    def start(self, *flags: str, ready: bool = True) -> None:
        env = [f"{key}={value}" for key, value in self.env.items()]
        agent = [*self.program, "--dangerously-skip-permissions", "--settings", str(self.settings)]
        command = ["env", "-i", *env, *agent, *flags]
        # A server that exits with its last session may still be exiting when the next one is wanted.
        self.tmux("new-session", "-d", "-s", "a", "-x", "500", "-y", "100", "-c", str(self.cwd), *command, ";",
                  "set-option", "-g", "remain-on-exit", "on", ";", "set-option", "-s", "exit-empty", "off")  # fmt: skip
        if ready:
            self.wait_hook("SessionStart")
            self.wait_status("idle")

    def stop(self) -> None:
        # One whose last session has ended is already gone.
        env = {"PATH": self.env["PATH"], "TERM": self.env["TERM"]}
        subprocess.run(["tmux", "-L", self.socket, "kill-server"], capture_output=True, check=False, env=env)
        Path(f"/tmp/tmux-{os.getuid()}/{self.socket}").unlink(missing_ok=True)

    def tmux(self, *words: str, data: bytes | None = None) -> str:
        run = subprocess.run(
            ["tmux", "-L", self.socket, "-f", "/dev/null", *words],
            input=data,
            capture_output=True,
            check=True,
            timeout=20,
            env={"PATH": self.env["PATH"], "TERM": self.env["TERM"], "LANG": "C.UTF-8"},
        )
        return run.stdout.decode()

    def paste(self, text: str) -> None:
        self.tmux("load-buffer", "-b", "test", "-", data=text.encode())
        self.tmux("if-shell", "-F", "-t", "=a:", "#{pane_dead}", "", "paste-buffer -p -d -b test -t =a:")

    def keys(self, *keys: str) -> None:
        self.tmux("send-keys", "-t", "=a:", *keys)

    def send(self, text: str) -> None:
        self.paste(text)
        self.keys("Enter")

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-t", "=a:")

    def story(self) -> str:
        """How it looks to tmux and to the kernel."""
        shown = self.tmux(
            "display-message", "-p", "-t", "=a:", "#{window_width}x#{window_height} #{pane_tty}"
        )
        tty = shown.split()[-1]
        size = subprocess.run(["stty", "-F", tty, "size"], capture_output=True, text=True).stdout
        programs = subprocess.run(
            ["ps", "-t", tty.removeprefix("/dev/"), "-o", "pid,pgid,tpgid,stat,blocked,caught,cmd"],
            capture_output=True,
            text=True,
        ).stdout
        return f"\n{shown}{size}{programs}{self.screen()}"

    def composer(self) -> str | None:
        """The draft between the two rules at the bottom; None when a dialog is there instead."""
        lines = self.screen().rstrip("\n").split("\n")
        rules = [at for at, line in enumerate(lines) if line and not line.strip("─")]
        if len(rules) < 2 or not lines[rules[-2] + 1].startswith("❯\u00a0"):
            return None
        box = lines[rules[-2] + 1 : rules[-1]]
        return "\n".join([box[0][2:], *(line[2:] for line in box[1:])])

    def exit_code(self) -> int:
        """tmux 3.3a may miss a pane's SIGCHLD and show no code until its next child exits: give it one."""
        show = ("display-message", "-p", "-t", "=a:", "#{pane_dead_status}")
        wait_until(lambda: self.tmux("display-message", "-p", "-t", "=a:", "#{pane_dead}").strip() == "1")
        return int(wait_until(lambda: self.tmux("run-shell", "true", ";", *show).strip()))

    def hooks(self, event: str = "") -> list[dict[str, Any]]:
        for path in self.hook_dir.glob("*.json"):
            if path.name not in self._heard:  # each is written once, and whole
                self._heard[path.name] = json.loads(path.read_text())
        found = [payload for _, payload in sorted(self._heard.items(), key=lambda item: item[0])]
        return [payload for payload in found if event in ("", payload["hook_event_name"])]

    def wait_hook(self, event: str, count: int = 1, timeout_s: float = WAIT_S) -> dict[str, Any]:
        """The count-th payload of this event."""
        wait_until(lambda: len(self.hooks(event)) >= count, timeout_s)
        return self.hooks(event)[count - 1]

    def status_files(self) -> list[Path]:
        return sorted((self.config / "sessions").glob("[0-9]*.json"))

    def status(self) -> dict[str, Any]:
        for path in self.status_files():
            try:
                fields: dict[str, Any] = json.loads(path.read_text())
                return fields
            except (ValueError, FileNotFoundError):
                continue  # rewritten in place: half a file is normal
        return {}

    def wait_status(self, status: str) -> dict[str, Any]:
        wait_until(lambda: self.status().get("status") == status)
        return self.status()

    def rows(self, kind: str = "", path: str | None = None) -> list[dict[str, Any]]:
        paths = [Path(path)] if path else sorted((self.config / "projects").glob("*/*.jsonl"))
        rows = [json.loads(line) for each in paths for line in each.read_text().splitlines()]
        return [row for row in rows if kind in ("", row["type"])]

    def wait_rows(
        self, kind: str, wanted: Callable[[dict[str, Any]], bool], count: int = 1
    ) -> dict[str, Any]:
        wait_until(lambda: len([row for row in self.rows(kind) if wanted(row)]) >= count)
        return [row for row in self.rows(kind) if wanted(row)][count - 1]
