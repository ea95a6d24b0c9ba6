"""`llmc start` from several callers at the same moment: each gets its own worker."""

import json
import subprocess
import sys

import pytest

from tests.support.fleet import Fleet

WORKERS = ("adam", "baker", "carol", "dora")


def starts(fleet: Fleet, count: int) -> list[tuple[int, dict[str, str]]]:
    """`count` times `llmc start` at once, each in its own process: the exit code and answer of each."""
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "llmc", "start", "--json", "--prompt", f"@say {number}"],
            cwd=fleet.source,
            env=fleet.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    answers = [(process.communicate(timeout=120), process) for process in running]
    return [(process.returncode, json.loads(out or "{}")) for (out, _), process in answers]


@pytest.mark.soak
def test_two_callers_use_two_workers(fleet: Fleet) -> None:
    """Break: choose the worker before taking its lock; the second caller waits for adam, now busy."""
    fleet.set_up("adam", "baker")
    fleet.up()
    answers = starts(fleet, 2)
    assert [(code, answer.get("outcome")) for code, answer in answers] == [(0, "acknowledged")] * 2
    assert sorted(answer["worker"] for _, answer in answers) == ["adam", "baker"]


@pytest.mark.parametrize("rounds", [0, pytest.param(3, marks=pytest.mark.soak)])
@pytest.mark.soak
def test_as_many_callers_as_workers_and_one_more(scripted: Fleet, rounds: int) -> None:
    """Break: give up at a worker whose lock is held for a moment, or give one worker to two callers."""
    scripted.set_up(*WORKERS)
    scripted.up()
    for _ in range(rounds):
        answers = starts(scripted, len(WORKERS))
        assert [code for code, _ in answers] == [0] * len(WORKERS), answers
        assert sorted(answer["worker"] for _, answer in answers) == list(WORKERS)
        for worker in WORKERS:
            scripted.wait(worker, "needs_input")
        scripted.llmc("reset", "--all", "--yes")
    answers = starts(scripted, len(WORKERS) + 1)
    assert sorted(code for code, _ in answers) == [0] * len(WORKERS) + [4], answers
    assert sorted(answer["worker"] for code, answer in answers if code == 0) == list(WORKERS)


@pytest.mark.soak
def test_a_worker_with_a_draft_in_its_box_is_passed_over(scripted: Fleet) -> None:
    """Break: take the first idle worker despite the user's draft. By name, or alone, it is refused."""
    scripted.set_up("adam", "baker")
    scripted.up()
    scripted.tmux("send-keys", "-t", scripted.session("adam"), "-l", "half a thought")
    assert scripted.llmc("start", "--json", "--prompt", "@say hello").json["worker"] == "baker"
    (scripted.worktree("adam") / "by-hand").write_text("a person's own\n")
    refused = scripted.llmc("start", "--json", "--worker", "adam", "--prompt", "@say hello", code=3).json
    assert (refused["outcome"], "draft" in refused["reason"]) == ("refused", True)
    assert (scripted.worktree("adam") / "by-hand").exists(), "a refused start changes nothing"
    assert "adam's input box contains a draft" in scripted.llmc("start", "--prompt", "@say hello", code=3).err
    assert "half a thought" in scripted.screen("adam")
