"""Rebased work is validated: a clean `rebase` before it waits again, resolved conflicts before they count."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from llmc.base.processes import is_alive
from tests.support.fleet import REAL_IN_SOAK, Fleet
from tests.support.waiting import wait_until

WHO = "git -c user.name=Worker -c user.email=worker@example.com -c core.editor=true"
COMMIT = f"{WHO} commit -q -m"
CONTINUE = f"{WHO} rebase --continue"
RESOLVE = f"printf 'main\\nmine\\n' > a.txt; git add a.txt; {CONTINUE}"


def set_up(fleet: Fleet, script: str, *flags: str, **config: str) -> None:
    """A fleet whose validation is an external script that tests may change."""
    fleet.commit("a.txt", "one\n", "Add a.txt")
    check(fleet, script)
    command = {"repo.validate": f"sh {fleet.dir}/check"}
    fleet.set_up("adam", config=command | {key.replace("__", "."): value for key, value in config.items()})
    fleet.up(*flags)


@pytest.fixture(scope="module")
def shared() -> Iterator[Fleet]:
    fleet = Fleet("scripted")
    set_up(fleet, "true", "--no-patrol")
    yield fleet
    fleet.close()


@pytest.fixture
def running(shared: Fleet) -> Iterator[Fleet]:
    """A shared fleet: adam is idle, its validation passes, and nothing has run."""
    for name in ("ran", "runs", "go"):
        (shared.dir / name).unlink(missing_ok=True)
    check(shared, "true")
    shared.plant({"a.txt": "one\n"})
    yield shared.new_case()
    shared.rest("adam")


def check(fleet: Fleet, script: str) -> None:
    (fleet.dir / "check").write_text(script)


def begin(fleet: Fleet, on_conflict: str = RESOLVE) -> str:
    """Work on a.txt that waits for review, and a default branch that conflicts with it."""
    task = f"Do what I say\n@sh echo mine > a.txt; {COMMIT} 'Mine' -a\n@on-conflict {on_conflict}"
    fleet.llmc("start", "--prompt", task)
    tip = str(fleet.wait("adam", "needs_review")["commit_sha"])
    fleet.commit("a.txt", f"main {time.time()}\n", "Theirs")
    return tip


def record(fleet: Fleet) -> dict[str, Any]:
    return dict(json.loads((fleet.root / "state.json").read_text())["workers"]["adam"])


def prompts(fleet: Fleet, kind: str) -> list[str]:
    return [text for text in fleet.user_turns() if text.startswith(f"[llmc {kind}-")]


def lines(fleet: Fleet, name: str) -> list[str]:
    path = fleet.dir / name
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.req("2-017", "2-031")
def test_a_clean_rebase_waits_again_only_after_its_validation(running: Fleet) -> None:
    """Break: no then_validate in rebase(); or keep the status needs_review during the validation."""
    check(running, f"cp {running.root}/state.json {running.dir}/during")
    running.llmc("start", "--prompt", f"@sh echo x > x; git add x; {COMMIT} 'X'")
    before = running.wait("adam", "needs_review")
    running.commit("b.txt", "main\n", "Theirs")
    done = running.llmc("rebase", "adam", "--json").json
    during = json.loads((running.dir / "during").read_text())["workers"]["adam"]
    assert (during["status"], during["commit_sha"]) == ("rebasing", None)
    after = running.status("adam")
    assert (after["status"], after["reason"]) == ("needs_review", "rebased")
    assert after["commit_sha"] == done["commit"] != before["commit_sha"]
    assert after["since_unix"] == before["since_unix"], "its waiting time did not restart"
    assert len(running.events("rebase_validated")) == 1
    check(running, "test ! -e x || { echo that is broken; exit 4; }")
    running.commit("c.txt", "main\n", "Breaks it")
    failed = running.llmc("rebase", "adam", code=1)
    assert (
        "validation failed with exit code 4, but the work was rebased and is waiting for review" in failed.err
    )
    assert "that is broken" in failed.err
    assert running.status("adam")["reason"] == "rebased, but fails validation"
    assert running.events("validation_failed")[0]["round"] == 0
    assert not running.prompts_in_transcripts()[1:], "a clean rebase does not need the worker"
    check(running, "true")
    running.llmc("accept", "adam")


MENDED = "grep -q mine a.txt || exit 0; grep -q mended a.txt || { printf 'a.txt is not mended\\033\\n%s\\n' \"$MEND\"; exit 7; }"
MEND = f"@sh echo mended >> a.txt; {COMMIT} 'Mend' -a"


@pytest.mark.req("2-022", "1-134", "1-016", "2-017")
@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_a_resolution_that_does_not_pass_goes_back_to_the_worker(fleet: Fleet) -> None:
    """Break: needs_review as soon as git is done, or a prompt without the output."""
    set_up(fleet, "true")
    begin(fleet)
    check(fleet, f"MEND='{MEND.replace(chr(39), chr(39) + chr(92) + chr(39) + chr(39))}'; {MENDED}")
    fleet.llmc("rebase", "adam", code=1)
    assert fleet.wait("adam", "needs_review")["reason"] == "conflicts resolved"
    (prompt,) = prompts(fleet, "validation")
    assert "a.txt is not mended" in prompt
    assert f"sh {fleet.dir}/check" in prompt
    assert "round 2 of 3" in prompt
    assert "Do what I say" not in prompt
    (failed,) = fleet.events("validation_failed")
    assert (failed["code"], failed["round"]) == (7, 1)
    moves = [row["to"] for row in fleet.events("status_changed")]
    assert moves[-2:] == ["rebasing", "needs_review"], "it was rebasing all the time"
    assert len(prompts(fleet, "conflict")) == 1
    fleet.llmc("accept", "adam")
    assert (fleet.source / "a.txt").read_text() == "main\nmine\nmended\n"


@pytest.mark.req("2-022")
@pytest.mark.soak
def test_three_validations_that_fail_are_an_error(running: Fleet) -> None:
    """Break: do not count them, or send the whole output."""
    tip = begin(running)
    check(running, f"grep -q mine a.txt || exit 0; echo v >> {running.dir}/ran; seq 1 200000; exit 1")
    running.llmc("rebase", "adam", code=1)
    failed = running.wait("adam", "error")
    assert failed["cause"] == "command"
    assert "validation still fails after 3 rounds" in failed["error_reason"]
    assert [row["round"] for row in running.events("validation_failed")] == [1, 2, 3]
    assert len(lines(running, "ran")) >= 3  # and once more after the base has passed
    sent = prompts(running, "validation")
    assert len(sent) == 2
    assert all(len(text) < 8000 and "\n200000\n" in text for text in sent)
    pinned = running.git("for-each-ref", "--contains", tip, "refs/llmc/trash", cwd=running.root)
    assert pinned


@pytest.mark.parametrize(
    ("when", "by"),
    [
        ("before", "up"),
        pytest.param("after", "up", marks=pytest.mark.soak),
        pytest.param("before", "review", marks=pytest.mark.soak),
    ],
)
def test_killed_while_it_validates(running: Fleet, when: str, by: str) -> None:
    """Break: clear validation_due before the validation is over, or wait for a hook that already came."""
    begin(running)
    running.kill_daemon()
    check(running, f"echo v >> {running.dir}/ran")
    running.llmc("up", "--detach", "--no-patrol", LLMC_FAULT=f"rebase.validate:{when}:kill")
    pid = running.daemon_pid()
    running.llmc("rebase", "adam", code=1)
    wait_until(lambda: not running.has_daemon())
    if when == "before":
        assert record(running)["validation_due"]
        assert running.status("adam")["status"] == "rebasing"
    if by == "up":
        running.up("--no-patrol")
        assert running.daemon_pid() != pid
    else:
        running.llmc("review", "adam")
    assert running.wait("adam", "needs_review")["reason"] == "conflicts resolved"
    assert len(lines(running, "ran")) == 1
    assert len(prompts(running, "conflict")) == 1
    assert not prompts(running, "validation")
    running.llmc("accept", "adam")


@pytest.mark.req("1-081")
@pytest.mark.soak
def test_one_patrol_at_a_time_and_none_in_a_shutdown(scripted: Fleet) -> None:
    """Break: run patrol beside the lane, let a shutdown wait for it, or continue after a shutdown started."""
    set_up(scripted, "true", defaults__patrol_interval_secs="0.2")
    go = scripted.dir / "go"
    begin(scripted)
    check(
        scripted,
        f"echo begun >> {scripted.dir}/ran; echo $$ > {scripted.dir}/pid\n"
        f"while test -e {scripted.dir}/check && ! test -e {go}; do sleep 0.05; done; echo ended >> {scripted.dir}/ran",
    )
    scripted.wait("adam", "rebasing")
    wait_until(lambda: lines(scripted, "ran"))
    for _ in range(4):
        last = json.loads((scripted.root / "state.json").read_text())["patrol_last_run_unix"]
        wait_until(
            lambda last=last: (
                json.loads((scripted.root / "state.json").read_text())["patrol_last_run_unix"] > last
            )
        )
    assert lines(scripted, "ran") == ["begun"], "patrols came, and did not disturb the running one"
    began = time.monotonic()
    scripted.llmc("down")
    assert time.monotonic() - began < 15
    assert lines(scripted, "ran") == ["begun"], "given up"
    pid = int((scripted.dir / "pid").read_text())
    assert not is_alive(pid)
    assert scripted.events()[-1]["action"] == "daemon_stopped"
    go.touch()
    scripted.up()
    assert scripted.wait("adam", "needs_review")["reason"] == "conflicts resolved"
    assert lines(scripted, "ran") == ["begun", "begun", "ended"]
    assert not scripted.events("validation_failed")


def test_a_commit_made_while_it_is_validated_is_validated_too(running: Fleet) -> None:
    """Breaks when settle does not check HEAD afterwards: what waits for review would not be what passed."""
    fleet = running
    check(fleet, f"echo >> {fleet.dir}/runs; while ! test -e {fleet.dir}/go; do sleep 0.02; done")
    fleet.llmc("start", "--prompt", f"@sh echo x > x; git add x; {COMMIT} 'X'")
    fleet.wait("adam", "needs_review")
    fleet.commit("b.txt", "main\n", "Theirs")
    process = fleet.spawn("rebase", "adam")
    wait_until(lambda: lines(fleet, "runs"), story=fleet.story)
    place = fleet.worktree("adam")
    fleet.git("commit", "-q", "--allow-empty", "-m", "One more", cwd=place)
    (fleet.dir / "go").touch()
    assert process.wait(60) == 1
    fleet.wait("adam", "needs_review")
    assert record(fleet)["commit_sha"] == fleet.git("rev-parse", "HEAD", cwd=place)
    assert len(lines(fleet, "runs")) == 2
