"""The machine of a run: enough to compare, nothing that identifies it."""

import os
import platform
import re
import subprocess
import tempfile
from pathlib import Path

from tests.support.real_client import client_env, find_client


def machine() -> dict[str, str]:
    return {
        "load": f"{os.getloadavg()[0]:.1f}",
        "cores": str(len(os.sched_getaffinity(0))),
        "cpu": _first(r"model name\s*:\s*(.+)", "/proc/cpuinfo"),
        "ram": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GB",
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "tmux": _version(["tmux", "-V"]),
        "git": _version(["git", "--version"]),
        "client": _client_version(),
    }


def _first(pattern: str, path: str) -> str:
    found = re.search(pattern, Path(path).read_text())
    return found[1].strip() if found else "unknown"


def _version(argv: list[str], env: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, env=env)
    except OSError:
        return "none"
    found = re.search(r"\d+(\.\w+)+", done.stdout)
    return found[0] if found else "unknown"


def _client_version() -> str:
    try:
        client = find_client()
    except FileNotFoundError:
        return "none"
    with tempfile.TemporaryDirectory() as home:
        return _version([str(client), "--version"], client_env(Path(home), Path(home), "http://127.0.0.1:9"))
