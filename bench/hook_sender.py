"""The hook sender against an interpreter that does nothing: it runs at every turn of every agent."""

import contextlib
import json
import os
import socket
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.fleets import python
from bench.measure import Row, interleave, program_ms, row
from llmc import hook_client

NAME = "hook_sender"
TARGET = 1.3
ROUNDS = 100
PAYLOAD = json.dumps({"hook_event_name": "Stop", "last_assistant_message": "x" * 960}).encode()


def run() -> list[Row]:
    bare = [python(), "-I", "-S"]
    env = {"PATH": os.defpath, "LLMC_WORKER": "adam", "LLMC_INSTANCE": "0123456789ab"}
    with tempfile.TemporaryDirectory(prefix="llmc-b-") as directory:
        inbox = Path(directory) / "inbox"
        inbox.mkdir()
        sender = [*bare, hook_client.__file__, str(inbox)]
        with _listener(f"{directory}/wake.sock") as (path, sock):

            def send(socket_path: str) -> float:
                elapsed_ms = program_ms([*sender, socket_path], env, PAYLOAD)
                written = list(inbox.iterdir())
                assert len(written) == 1, "the sender left no event"
                written[0].unlink()
                return elapsed_ms

            def send_heard() -> float:
                elapsed_ms = send(path)
                assert sock.recv(100) == b"adam"
                return elapsed_ms

            times = interleave(
                {
                    "floor": lambda: program_ms([*bare, "-c", "pass"], env, PAYLOAD),
                    "daemon listens": send_heard,
                    "no daemon": lambda: send(f"{directory}/none.sock"),
                },
                ROUNDS,
            )
    floor_ms = statistics.median(times.pop("floor"))
    return [
        row(NAME, case, values, "python -I -S -c pass", floor_ms, target=TARGET)
        for case, values in times.items()
    ]


@contextlib.contextmanager
def _listener(path: str) -> Iterator[tuple[str, socket.socket]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path)
        sock.settimeout(60)
        yield path, sock
