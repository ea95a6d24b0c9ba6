"""What nodes of a fleet do for each other: the post-accept command of a node that died, answers, events and proposals."""

from tests.support.auto import auto, commit, until, wait_for
from tests.support.fleet import Fleet
from tests.support.fleet_nodes import fleet_of, in_root, landed, states, up

QUICK = {"fleet.lease_secs": "2"}


def add(node: Fleet, number: int, *lines: str) -> None:
    in_root(node, "tasks", "add", f"Do {number}", "-d", "\n".join(lines) or commit(number))


def is_landing(node: Fleet) -> bool:
    return node.record("auto-1")["accept"] is not None


def test_the_post_accept_command_of_a_killed_node_runs_on_another(database: str) -> None:
    """Meanwhile nothing lands. Break: leave the commands of others out of KEEP_TICKET, or never take one over."""
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
