"""From submit to the agent's receipt, against the wait that the requirements prescribe for the same prompt."""

from collections.abc import Callable

from bench.fleets import AGENTS, fleet, pace_ms, wait_for_rest
from bench.measure import Row, clock_ms, interleave, row
from llmc.records.worker import Status
from llmc.repo.project import Project
from llmc.sessions import submit

NAME = "submit_receipt"
TARGET = 0.25
TARGET_BYTES = 4096
SIZES = {"10 B": 10, "1 KB": 1024, "4 KB": TARGET_BYTES, "20 KB": 20 * 1024, "90 KB": 90 * 1024}
ROUNDS = 20


def run() -> list[Row]:
    return [found for agent in AGENTS for found in _run(agent)]


def documents_ms(size: int) -> float:
    """The prescribed wait between paste and Enter: half a second, and 100 ms per KB."""
    return 500 + 100 * size / 1024


def prompt(size: int) -> str:
    line = "Explain what this line of the prompt is for, at some length.\n"
    return (line * (size // len(line) + 1))[: size - 1] + "."


def _run(agent: str) -> list[Row]:
    with fleet(agent, "adam") as (_, project):
        timers = {case: timer(project, "adam", prompt(size)) for case, size in SIZES.items()}
        times = interleave({**timers, "pace": pace_ms}, ROUNDS, warm_up=1)
    return [
        row(
            NAME,
            f"{agent}, {case}",
            times[case],
            "500 ms + 100 ms/KB",
            documents_ms(size),
            target=TARGET if size == TARGET_BYTES else None,
            pace_ms=times["pace"],
        )
        for case, size in SIZES.items()
    ]


def timer(project: Project, name: str, text: str) -> Callable[[], float]:
    def send() -> None:
        receipt = submit.submit(project, name, "message", text, then=Status.WORKING)
        assert receipt.outcome.arrived, receipt

    def timed() -> float:
        wait_for_rest(project, name, Status.IDLE)
        with project.worker_lock(name):
            return clock_ms(send)

    return timed
