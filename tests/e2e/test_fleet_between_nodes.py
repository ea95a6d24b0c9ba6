"""What nodes of a fleet do for each other: a dead node's post-accept command, answers, events, proposals."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.support import goals
from tests.support.auto import at_work, auto, commit, until, wait_for
from tests.support.fleet import Fleet
from tests.support.fleet_nodes import attempts, fleet_of, in_root, landed, states, up
from tests.support.waiting import wait_until

QUICK = {"fleet.lease_secs": "2"}


def add(node: Fleet, number: int, *lines: str) -> None:
    in_root(node, "tasks", "add", f"Do {number}", "-d", "\n".join(lines) or commit(number))


def is_landing(node: Fleet) -> bool:
    return node.record("auto-1")["accept"] is not None


@pytest.mark.soak
def test_the_post_accept_command_of_a_killed_node_runs_on_another(database: str) -> None:
    """Until then nothing lands. Break: leave other nodes out of KEEP_TICKET, or never take a command over."""
    with fleet_of(("one", "two"), database, **QUICK) as nodes:
        one, two = nodes.values()
        ran, end = one.dir / "ran", one.dir / "end"
        for name, node in nodes.items():
            command = f"echo {name} $LLMC_TASK_ID >> {ran}; {until(end)}"
            node.configure({"auto.post_accept_command": command})
        add(one, 1)
        up(one, "--concurrency", "1")
        wait_for(one, ran.exists)
        add(two, 2)
        up(two, "--concurrency", "1")
        wait_for(two, lambda: is_landing(two))
        one.kill_daemon()
        wait_for(two, lambda: ran.read_text().split() == ["one", "1", "two", "1"])
        assert landed(two) == ["Task 1"], "nothing lands until the command has finished"
        end.touch()
        wait_for(two, lambda: set(states(database).values()) == {"completed"})
        assert landed(two) == ["Task 1", "Task 2"]
        up(one, "--concurrency", "1")
        wait_for(one, lambda: not auto(one)["post_accept_due"])
        wait_for(two, lambda: not auto(two)["post_accept_due"])
        assert ran.read_text().splitlines() == ["one 1", "two 1", "two 2"], "not again on the node that died"


@pytest.mark.soak
def test_a_question_is_seen_and_answered_on_every_node(database: str) -> None:
    """Break: leave answers out of the heartbeat; answer what is asked by then; or wait for a lost node."""
    with fleet_of(("one", "two"), database, **QUICK) as nodes:
        one, two = nodes.values()
        in_root(one, "add", "adam")
        for node in nodes.values():
            up(node, "--concurrency", "1")
        in_root(one, "message", "adam", "@ask Which colour?")

        def seen() -> str:
            return in_root(two, "status", "--fleet")

        wait_until(lambda: "next: llmc answer one/adam" in seen(), 15, seen)
        assert "one: adam: Which colour?" in seen()
        sent = two.llmc("answer", "one/adam", "1", "--json", cwd=two.root).json
        assert (sent["worker"], sent["outcome"]) == ("one/adam", "acknowledged")
        assert [row["answer"] for row in one.events("question_answered")] == ["Yes"]
        wait_until(lambda: "one/adam" not in seen(), 15, seen)
        refused = two.llmc("answer", "one/adam", "2", cwd=two.root, code=3)
        assert "one/adam has no open question" in refused.err
        in_root(one, "message", "adam", "@sh llmc report blocked 'no key'")
        wait_until(lambda: "one: adam: no key" in seen(), 15, seen)
        pid = one.daemon_pid()
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until(lambda: "one  silent" in seen(), 15, seen)
            waits = two.llmc("answer", "one/adam", "it is in the safe", cwd=two.root, code=1)
            assert "one/adam: pending" in waits.err
            assert "node one is silent" in waits.err
            assert "one/adam: pending (sent by two" in seen()
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_for(one, lambda: any("it is in the safe" in text for text in one.user_turns()))
        wait_until(lambda: "one/adam: pending" not in seen(), 15, seen)


@pytest.mark.soak
def test_an_answer_of_a_daemon_that_died_keeps_its_receipt(database: str) -> None:
    """Break: deliver it again after a restart: the question is closed by then, and the receipt says `refused`."""
    with fleet_of(("one", "two"), database, **QUICK) as nodes:
        one, two = nodes.values()
        in_root(one, "add", "adam")
        one.env["LLMC_FAULT"] = "submit.record:after:kill"
        up(one, "--concurrency", "1")
        del one.env["LLMC_FAULT"]
        in_root(one, "message", "adam", "@sh llmc report blocked 'no key'")
        wait_until(lambda: "one: adam: no key" in in_root(two, "status", "--fleet"), 30)
        asking = threading.Thread(
            target=two.llmc,
            args=("answer", "one/adam", "it is in the safe"),
            kwargs={"cwd": two.root, "code": None},
        )
        asking.start()
        wait_until(lambda: any("it is in the safe" in text for text in one.user_turns()), 30)
        wait_until(lambda: "not running" in in_root(one, "status", code=None), 30)
        up(one, "--concurrency", "1")
        asking.join()
        receipt = "select outcome, prompt_id <> '' from llmc.answer"
        with psycopg.connect(database) as db:
            wait_until(lambda: db.execute(receipt).fetchall() == [("acknowledged", True)], 30)
        assert [text for text in one.user_turns() if "safe" in text][1:] == [], "it is typed once"


@contextmanager
def followed(node: Fleet) -> Iterator[list[str]]:
    """The lines of `events --fleet --follow`, as they arrive; Ctrl-C ends it."""
    command = [sys.executable, "-m", "llmc", "events", "--fleet", "--follow", "--json"]
    lines: list[str] = []
    with subprocess.Popen(
        command, cwd=node.root, env=node.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        reading = threading.Thread(target=lambda: lines.extend(process.stdout or ()))
        reading.start()
        try:
            yield lines
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130
            reading.join(10)
            assert process.stderr is not None
            assert process.stderr.read() == ""


@pytest.mark.soak
def test_the_night_of_all_nodes_is_told_on_every_one(database: str) -> None:
    """Break: order by each node's clock; merge two workers of the same name; or forget the node that died.

    Or end `--follow` after the existing events.
    """
    with fleet_of(("one", "two"), database, **QUICK) as nodes, followed(nodes["two"]) as lines:
        one, two = nodes.values()
        add(one, 1)
        up(one, "--concurrency", "1")
        wait_for(one, lambda: states(database) == {"1": "completed"})
        wait_until(lambda: "task_completed" in in_root(two, "events", "--fleet"), 15)
        one.kill_daemon()
        add(two, 2)
        up(two, "--concurrency", "1")
        wait_for(two, lambda: states(database)["2"] == "completed")
        wait_until(lambda: "silent" in in_root(two, "fleet", "nodes"), 15)  # until then it may be alive
        in_root(two, "down")
        rows = [json.loads(line) for line in in_root(one, "events", "--fleet", "--json").splitlines()]
        wait_until(lambda: len(lines) == len(rows), 15, lambda: "\n".join(lines))
        assert sorted(row["seq"] for row in map(json.loads, lines)) == sorted(row["seq"] for row in rows)
        done = [
            (row["node"], row["worker"], row["task_id"]) for row in rows if row["action"] == "task_completed"
        ]
        assert done == [("one", "one/auto-1", "1"), ("two", "two/auto-1", "2")]
        assert [row["ts"] for row in rows] == sorted(row["ts"] for row in rows)
        stopped = [row["node"] for row in rows if row["action"] == "auto_stopped"]
        assert stopped == [], "killed, and told to stop"
        for node in nodes.values():
            told = json.loads(in_root(node, "digest", "--fleet", "--json"))
            assert [(row["worker"], row["task_id"]) for row in told["accepted"]] == [
                ("one/auto-1", "1"),
                ("two/auto-1", "2"),
            ]
            assert told["runs"]["times"] == 2
            assert [row["text"].partition(" (")[0] for row in told["interruptions"]] == [
                "one: the daemon was killed"
            ]
        text = in_root(two, "digest", "--fleet")
        assert "one/auto-1" in text
        assert "two/auto-1" in text


@pytest.mark.soak
def test_what_an_agent_proposes_is_approved_on_another_node(database: str) -> None:
    """Break: leave the agents' own files out of a shared list; or add the task before its hold."""
    with fleet_of(("one", "two"), database, **QUICK) as nodes:
        one, two = nodes.values()
        made = commit(2).removeprefix("@")
        add(one, 1, f"@task @{made}", "@task Second", commit(1))
        up(one, "--concurrency", "2")
        wait_for(one, lambda: states(database) == {"1": "completed", "2": "pending", "3": "pending"})
        listed = two.llmc("tasks", "list", "--json", cwd=two.root).json["tasks"]
        assert {row["id"]: row["state"] for row in listed} == {
            "1": "completed",
            "2": "proposed",
            "3": "proposed",
        }
        worker = one.events("task_proposed")[0]["worker"]
        assert [(row["worker"], row["task_id"]) for row in one.events("task_proposed")] == [
            (worker, "2"),
            (worker, "3"),
        ]
        assert f"created by one/{worker} on task 1" in in_root(two, "tasks", "list")
        assert attempts(database) == {"1": ["one"]}, "an idle worker waited for tasks all the time"
        wait_until(lambda: "next: llmc tasks approve 2" in in_root(two, "status", "--fleet"), 15)
        in_root(two, "tasks", "approve", "2")
        wait_for(one, lambda: states(database) == {"1": "completed", "2": "completed", "3": "pending"})
        assert landed(one) == ["Task 1", "Task 2"]


@pytest.mark.soak
def test_a_question_in_a_plan_item_is_answered_wherever_its_worker_is(database: str) -> None:
    """Break: leave a blocked worker to the goals on a node that does not drive them."""
    with fleet_of(("one", "two"), database, **goals.QUICK, **QUICK) as nodes:
        one, two = nodes.values()
        two.configure({"overseer.goals.enabled": "false"})
        gate = one.dir / "go"

        def asks(number: int) -> dict[str, Any]:
            asked = f"{one.dir}/asked-{number}"
            report = f"llmc report blocked 'Which colour {number}?'"
            question = f"@sh test -e {asked} || {{ touch {asked}; {report}; exit 1; }}"
            again = f"test -e {asked}.again || {{ touch {asked}.again; exit 0; }}"
            return goals.leaf(number, question, goals.commit(number, again))

        made = goals.plan([[asks(1)]], [[asks(2)]])
        one.configure({"overseer.goals.planner.command": goals.planner(one, made)})
        up(one, "--concurrency", "1")
        in_root(one, "goal", "create", "--title", "The goal")
        wait_for(one, lambda: "Which colour 1?" in in_root(two, "inbox"), 60)
        add(two, 9, commit(9, until(gate)))
        in_root(two, "answer", "S1.1.1", f"Blue\n{goals.commit(1)}")
        wait_for(one, lambda: at_work(one).get("auto-1") == "2", 60)
        up(two, "--concurrency", "1")

        def seen() -> str:
            return in_root(one, "status", "--fleet")

        wait_until(lambda: "next: llmc answer two/auto-1" in seen(), 60, lambda: seen() + two.story())
        assert "two: auto-1: Which colour 2?" in seen()
        in_root(one, "answer", "two/auto-1", f"Red\n{goals.commit(2)}")
        wait_for(two, lambda: "Part 2" in landed(one), 60)
        gate.touch()
        wait_for(one, lambda: landed(one) == ["Part 1", "Part 2", "Task 9"], 60)


@pytest.mark.soak
def test_a_node_without_a_post_accept_command_says_why_nothing_lands(database: str) -> None:
    """Break: drop a lost node's command without running it; or read the configuration only at the start."""
    with fleet_of(("one", "two"), database, **QUICK) as nodes:
        one, two = nodes.values()
        ran = one.dir / "ran"
        one.configure({"auto.post_accept_command": f"touch {ran}; {until(one.dir / 'never')}"})
        add(one, 1)
        up(one, "--concurrency", "1")
        wait_for(one, ran.exists)
        one.kill_daemon()
        add(two, 2)
        up(two, "--concurrency", "1")
        wait_for(
            two, lambda: "nothing can land: the post-accept command for task 1" in in_root(two, "status")
        )
        wait_for(two, lambda: is_landing(two))
        assert landed(two) == ["Task 1"]
        in_root(two, "config", "set", "auto.post_accept_command", f"echo $LLMC_TASK_ID >> {ran}")
        wait_for(two, lambda: ran.read_text().split() == ["1", "2"])
        assert landed(two) == ["Task 1", "Task 2"]
        wait_until(lambda: "nothing lands" not in in_root(two, "status"))
