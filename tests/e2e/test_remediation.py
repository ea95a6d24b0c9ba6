"""Remediation: the supervisor's own agent fixes what stopped the fleet, beside a running fleet."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.fleet import REAL_IN_SOAK, Fleet
from tests.support.remedy import Remedy
from tests.support.waiting import wait_until

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"


def agent_pid(fleet: Fleet) -> str:
    return fleet.tmux("display-message", "-p", "-t", fleet.session("overseer"), "#{pane_pid}").strip()


def newest_log(fleet: Fleet) -> str:
    logs = sorted((fleet.root / "logs").glob("remediation_*.txt"))
    return logs[-1].read_text() if logs else ""


@pytest.mark.req("0-103", "0-140", "0-141", "0-144", "0-145", "0-149", "4-005")
@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
@pytest.mark.soak
def test_a_failure_is_fixed_beside_a_worker_at_its_task(fleet: Fleet) -> None:
    """Break: no OverseerRoot.inbox and wake_socket of its own (the daemon would get its hooks); kill_server
    in close_server (`down` would end it); no clear=True; leave tool_use out of row_text. Or launch the
    supervisor's agent without the task list; or leave of_fleet out of worker_tasks.mark.
    """
    broken = fleet.source / "build.cfg"
    broken.write_text("broken\n")
    fleet.set_up("adam", config={"defaults.ready_timeout_s": "60", "auto.task_list_id": "plan"})
    if fleet.agent == "claude":
        untrusted = Remedy(fleet, "Fix it.").done()
        assert untrusted["outcome"] == "failed"
        assert "llmc init --trust" in untrusted["problem"]
        fleet.llmc("init", "--trust")
    fleet.up()
    began, fixed = fleet.marks / "adam-began", fleet.marks / "fixed"
    wait = "until [ -e {} ]; do sleep 0.1; done"
    work = f"touch {began}; {wait.format(fixed)}; echo x > x; git add x; {COMMIT} 'X'"
    fleet.llmc("start", "--prompt", f"@sh {work}")
    fix = f"{wait.format(began)}; pwd; sed -i s/broken/sound/ build.cfg; cat build.cfg; touch {fixed}"
    share = "@task Watch the build\n@sh echo the list is $CLAUDE_CODE_TASK_LIST_ID"
    done = Remedy(fleet, f"The build is broken.\n@sh {fix}\n{share}\n@say It is sound again.").done()
    assert (done["outcome"], done["problem"]) == ("completed", ""), (done, newest_log(fleet))
    assert broken.read_text() == "sound\n"
    assert done["said"] == [
        "\x1b[31m⚠ Entering remediation mode...\x1b[0m",
        f"\x1b[32m✓ Remediation completed in {done['duration_s']:.1f}s\x1b[0m",
    ]
    fleet.wait("adam", "needs_review")
    assert not [event for event in fleet.events() if event["worker"] == "overseer"]
    assert not (fleet.root / ".llmc/inbox/overseer").exists()

    log = Path(done["log"])
    text = log.read_text()
    assert log.parent == fleet.root / "logs"
    assert log.name.startswith("remediation_")
    assert log.stat().st_mode & 0o777 == 0o600
    assert text.startswith("=== prompt\nThe build is broken.\n")
    called, answered, replied = (
        text.index(f"calls Bash\n    command: {fix}"),
        text.index(f"tool output\n    {fleet.source}\n    sound\n"),
        text.index("agent\n    It is sound again.\n"),
    )
    assert called < answered < replied < text.index("=== outcome\ncompleted\nduration: ")

    assert "the list is plan\n" in text
    tasks = fleet.llmc("tasks", "list", "--json").json["tasks"]
    assert [(row["subject"], row["state"]) for row in tasks] == [("Watch the build", "proposed")]
    waits = [
        row["next"] for row in fleet.llmc("status", "--json").json["attention"] if row["kind"] == "proposed"
    ]
    assert waits == ["llmc tasks approve 1"], "its notes become tasks only once approved"

    pid = agent_pid(fleet)
    assert "It is sound again." in fleet.llmc("peek", "overseer").out
    findings = fleet.llmc("doctor", "--json", code=None).out
    assert "overseer" not in findings, findings
    fleet.llmc("down")
    assert fleet.tmux("list-sessions", "-F", "#{session_name}").split() == ["llmc-root-overseer"]
    again = Remedy(fleet, "@say Nothing to fix.").done()
    assert (again["outcome"], agent_pid(fleet)) == ("completed", pid), again
    second = Path(again["log"]).read_text()
    assert "Nothing to fix." in second
    assert "The build is broken." not in second
    assert log.read_text() == text


@pytest.mark.drill
@pytest.mark.req("0-142", "0-143", "0-147", "0-148", "0-226", "0-228")
def test_what_can_happen_to_a_remediation(scripted: Fleet) -> None:
    """Break: TRIES = 1 (crash once), no limit in judge (hang), no `stopping` in judge, causes left out of
    _why; the session's record in state.json; doctor refused to the supervisor's agent.
    """
    scripted.set_up()
    # The state itself may be broken; and logs contain what a terminal would act on.
    (scripted.root / "state.json").write_text("{ not json")
    prompt = "The log: \x1b[31mred\x1b[0m\n@sh [ -e tried ] || { touch tried; kill -9 $PPID; }\n"
    prompt += "@sh llmc up; echo up: $?; llmc doctor --json > report; wc -c < report | grep -v '^0$'"
    once = Remedy(scripted, prompt).done()
    text = Path(once["log"]).read_text()
    assert once["outcome"] == "completed", (once, text)
    assert "attempt 2" in text
    assert "up: 3" in text, text
    assert "state.json cannot be read" in (scripted.source / "report").read_text()

    always = Remedy(scripted, "@crash 7").done()
    assert (always["outcome"], always["cause"]) == ("failed", "crash")
    assert always["said"][-1] == "\x1b[33m⚠ Remediation issue: crash: the agent exited with code 7\x1b[0m"
    assert Path(always["log"]).read_text().count("=== session") == 2

    hangs = Remedy(scripted, "@hang", limit_s=1).done()
    assert hangs["outcome"] == "timeout"
    assert hangs["said"][-1] == "\x1b[33m⚠ Remediation issue: the agent did not finish within 1 s\x1b[0m"
    assert "\ntimeout\n" in Path(hangs["log"]).read_text()

    limited = Remedy(scripted, "@limit 100").done()
    assert (limited["outcome"], limited["cause"]) == ("failed", "limit")
    assert limited["problem"].startswith("limit: You've hit your usage limit")

    stopped = Remedy(scripted, "@sh echo first words\n@hang")
    wait_until(lambda: "    first words" in newest_log(scripted), 120)
    stopped.process.send_signal(signal.SIGTERM)
    told = stopped.done()
    assert (told["outcome"], told["said"][-1]) == ("interrupted", "\x1b[33m⚠ Remediation interrupted\x1b[0m")


@pytest.mark.req("0-149")
def test_a_killed_supervisor_leaves_what_there_was(scripted: Fleet) -> None:
    """Break: write the log only at the end; do not quieten a session that is found busy."""
    scripted.set_up()
    killed = Remedy(scripted, "@sh echo first words\n@hang")
    wait_until(lambda: "    first words" in newest_log(scripted), 120)
    os.kill(killed.process.pid, signal.SIGKILL)
    killed.process.wait()
    left = newest_log(scripted)
    assert left.startswith("=== prompt\n@sh echo first words\n@hang\n")
    assert "=== outcome" not in left
    assert scripted.client_status("overseer") == "busy"
    later = Remedy(scripted, "@say back again").done()
    assert later["outcome"] == "completed", later
    logs = sorted((scripted.root / "logs").glob("remediation_*.txt"))
    assert [path.read_text() for path in logs[:1]] == [left]
    assert len(logs) == 2
    assert json.loads((scripted.root / "state.json").read_text())["workers"] == {}
