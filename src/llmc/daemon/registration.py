"""`.llmc/daemon.json`: which daemon runs, and how to reach it."""

import json
import os
from typing import Any

from llmc.base.files import write_atomic
from llmc.base.proc import caller_dir
from llmc.base.processes import start_of
from llmc.config.paths import Root


def write_registration(root: Root, instance_id: str, started_unix: float, **about: Any) -> None:
    body = {
        "pid": os.getpid(),
        "start_ticks": start_of(os.getpid()),
        "start_time_unix": started_unix,
        "instance_id": instance_id,
        "log_file": str(root.logs / "daemon.jsonl"),
        "socket": str(root.wake_socket()),
        "caller_dir": str(caller_dir()),
        **about,
    }
    write_atomic(root.daemon, json.dumps(body, indent=1).encode())
