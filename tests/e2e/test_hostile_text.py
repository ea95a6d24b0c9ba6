"""Untrusted text wherever llmc shows it: none of it acts on a terminal, and no command breaks on it."""

import itertools
import json
import os
import re
import time
from pathlib import Path

import click
import pytest
from msgspec.structs import replace

from llmc.cli.app import cli
from llmc.goals.model import AssignmentStatus, Change, Event
from llmc.goals.store.goal_store import GoalStore
from tests.support.command_tree import context
from tests.support.fleet import Fleet
from tests.support.goal_records import BLOCKED, assignment, node
from tests.support.texts import HOSTILE, acts_on_a_terminal

#: the same as bytes of a name or a command line: invalid UTF-8 is a byte instead of half an emoji
NAME = HOSTILE.replace("\ud83d", "\udcff")
#: and without it: what msgspec reads
TEXT = HOSTILE.replace("\ud83d", "")
LONG = HOSTILE + "x" * 10_000
COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -F"

#: they wait, become another program, or create their own fleet; their output is tested elsewhere
LEFT_OUT = {
    *(
        "up",
        "down",
        "overseer",
        "attach",
        "console",
        "claude",
        "hook",
        "demo",
        "drill",
        "config edit",
        "init",
        "completion",
    ),
}
#: they need the agents, or remove what the other commands show, so they come last
LAST = ("peek", "review", "accept", "undo", "rebase", "pick", "message", "reset", "nuke", "trash prune")
#: options that make a command return, or skip its question
MORE = {
    "undo": ["--yes"],
    "nuke": ["--yes"],
    "wait": ["--status", "idle", "--timeout", "0.1"],
    "web": ["--stop"],
}


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, click.Command]]:
    """Every command that can be called, with its full name."""
    found: list[tuple[str, click.Command]] = []
    with context(group) as ctx:
        for name in group.list_commands(ctx):
            one = group.get_command(ctx, name)
            words = (*path, name)
            if isinstance(one, click.Group):
                found += leaves(one, words)
            elif one is not None:
                found.append((" ".join(words), one))
    return found


def calls(words: str, command: click.Command, known: dict[str, str], every: bool) -> list[list[str]]:
    """Command lines of one command: with real names and with hostile ones; unless `every`, one of each."""
    named = [p for p in command.params if isinstance(p, click.Argument)]
    flags = {option for p in command.params for option in p.opts}
    real = [known.get(p.name or "", "1") for p in named]

    def lines(*texts: str) -> list[list[str]]:
        found = [real, *([text] * len(named) for text in texts)] if named else [[]]
        return [[*words.split(), *MORE.get(words, []), *args] for args in found]

    both = (NAME, TEXT)
    with_json = lines(*(both if every else (TEXT,))) if "--json" in flags else []
    mermaid = lines(*(both if every else ())) if "--mermaid" in flags else []
    return [
        *lines(*(both if every else (NAME,))),
        *([*line, "--json"] for line in with_json),
        *([*line, "--mermaid"] for line in mermaid),
    ]


def once(found: list[tuple[str, click.Command]]) -> list[tuple[str, click.Command]]:
    """Without aliases of the same command."""
    by_what = {one.callback: (words, one) for words, one in found}
    return [pair for pair in found if pair in by_what.values()]


@pytest.mark.soak
@pytest.mark.parametrize("every", [False, True], ids=["some", "all"])
def test_no_command_lets_hostile_text_through(scripted: Fleet, every: bool) -> None:
    """Break: print a subject, a name, a reason, a log or a diff past `say` and its like; plain json.dumps.

    On a terminal: keep an `ESC[8m` from untrusted text; or color a diff of hostile content.
    """
    known = hostile_fleet(scripted)
    scripted.env["GIT_PAGER"] = "cat"
    for line in SHOWN:
        only_our_colours(scripted, line)
    found = [(words, one) for words, one in leaves(cli) if not _left_out(words)]
    assert len(found) > 50
    found = found if every else once(found)
    last = [(words, one) for name in LAST for words, one in found if words == name]
    for words, one in [(words, one) for words, one in found if words not in LAST]:
        lets_nothing_through(scripted, words, calls(words, one, known, every))
    fleet_is_up_again(scripted)
    only_our_colours(scripted, ["review", "adam"])
    for words, one in last:
        lines = calls(words, one, known, every)
        if words == "undo":  # the first accepts name the files in the way
            scripted.git("clean", "-fdq", cwd=scripted.worktree("adam"))
            lines = [["accept", "adam"], *lines[:1]]
            if not every:
                for line in lines:
                    only_our_colours(scripted, line)
                continue
        lets_nothing_through(scripted, words, lines)
    assert landed(scripted) == 4  # it landed, and was undone


def lets_nothing_through(fleet: Fleet, words: str, lines: list[list[str]]) -> None:
    for line in lines:
        done = fleet.llmc(*line, code=None, stdin="", EDITOR="true", GIT_PAGER="cat")
        shown = done.out + done.err
        assert not acts_on_a_terminal(shown), (line, shown[-300:])
        assert "bug in llmc" not in shown, (line, shown[-300:])
        if "--json" in line and done.out:
            for text in done.out.splitlines() if "events" in words else [done.out]:
                json.loads(text)


#: shown on a terminal with colors
SHOWN = (
    ["status"], ["tasks", "list"], ["tasks", "show", "1"], ["events"], ["trash", "list"], ["digest"], ["logs", "adam"],
    ["goal", "list"], ["usage"], ["notify", "list"],
)  # fmt: skip


def only_our_colours(fleet: Fleet, line: list[str]) -> None:
    shown = fleet.on_terminal(*line).replace("\r\n", "\n")
    ours = re.sub(r"\x1b\[(0|1|2|3[0-7]|9[0-7])(;1)?m", "", shown)
    ours = re.sub(r"\r((?:  )?[a-z0-9 ]+ \.\.\.( \d+s)?|)\x1b\[K", "", ours)  # a step that counts its seconds
    assert not acts_on_a_terminal(ours), (line, ours[-2000:])
    assert "bug in llmc" not in shown, shown
    assert line[0] != "logs" or ("hidden" in shown and "[8m" not in shown)  # colors of programs are dropped


def _left_out(words: str) -> bool:
    return words in LEFT_OUT or words.split()[0] in ("demo", "drill", "completion")


@pytest.mark.soak
def test_nor_on_a_terminal_with_colours(scripted: Fleet) -> None:
    """The same while the fleet is up. Break: as above."""
    hostile_fleet(scripted)
    fleet_is_up_again(scripted)
    scripted.git("clean", "-fdq", cwd=scripted.worktree("adam"))
    scripted.env["GIT_PAGER"] = "cat"
    for line in (*SHOWN, ["review", "adam"], ["accept", "adam"], ["undo", "--yes"]):
        only_our_colours(scripted, line)
    assert landed(scripted) == 4  # it landed, and was undone


def test_a_harmless_diff_keeps_the_colours_of_git(scripted: Fleet) -> None:
    """Break: never use colors; or use them where the content has its own escape sequences."""
    scripted.set_up("adam", "baker")
    scripted.env["GIT_PAGER"] = "cat"
    scripted.up("--no-patrol")
    for name, text in (("adam", "harmless"), ("baker", "\\033[8mhidden")):
        prompt = f"@sh printf '{text}\\n' > x; git add x; {COMMIT.removesuffix('-F')} -m X"
        scripted.llmc("start", "--worker", name, "--prompt", prompt)
        scripted.wait(name, "needs_review")
    assert "\x1b[32m+" in scripted.on_terminal("review", "adam")
    shown = scripted.on_terminal("review", "baker")
    assert "+^[[8mhidden" in shown
    assert "\x1b[8m" not in shown


def test_half_an_emoji_in_the_state(scripted: Fleet) -> None:
    """Break: sys.stdout.write(json.dumps(view, ensure_ascii=False)) in cli/fast.py."""
    scripted.set_up("adam")
    in_state(scripted, error_reason=HOSTILE, current_prompt=LONG, reason=HOSTILE)
    for how in (["status", "--json"], ["status"], ["wait", "adam", "--status", "idle"]):
        done = scripted.llmc(*how, code=None)
        assert not acts_on_a_terminal(done.out + done.err), how
        assert "bug in llmc" not in done.err, how


def hostile_fleet(fleet: Fleet) -> dict[str, str]:
    """Hostile text wherever others can put it; returns the names for the command lines."""
    fleet.set_up(
        "adam", "baker", config={"auto.task_list_id": "l", "auto.tasks_root": str(fleet.dir / "tasks")}
    )
    fleet.llmc("tasks", "add", "First")
    fleet.llmc("tasks", "add", "Second", "--after", "1")
    (fleet.source / NAME[:200]).write_text("x")
    fleet.git("add", "-A")
    fleet.git("commit", "-q", "-m", "A name")
    fleet.up("--no-patrol")
    work = _work_files(fleet)
    fleet.llmc("start", "--worker", "baker", "--prompt", f"@sh sh {work}")
    fleet.wait("baker", "needs_review")
    trashed = fleet.llmc("reset", "baker", "--json").json
    fleet.llmc("start", "--worker", "adam", "--prompt", f"{HOSTILE_PROMPT}\n@sh sh {work}")
    fleet.wait("adam", "needs_review")
    fleet.llmc("down")
    for file in (fleet.dir / "tasks/l").glob("*.json"):
        task = json.loads(file.read_text())
        file.write_text(json.dumps({**task, "subject": HOSTILE, "description": f"{LONG}\n{HOSTILE}"}))
    _write_logs(fleet)
    goal_id = _hostile_goal(fleet)
    in_state(fleet, error_reason=TEXT, reason=TEXT, current_prompt=f"{TEXT}\n{TEXT}")
    ref = str(trashed[0]["ref"] if isinstance(trashed, list) else trashed["ref"])
    return {"worker": "adam", "ref": ref.removeprefix("refs/llmc/trash/"), "goal_id": goal_id, "id": "S1.1.1",
            "node_id": "S1.1.1", "task_id": "1", "task_ids": "1", "name": "adam", "names": "adam",
            "text": "x", "key": "repo.validate", "kind": "progress", "question_id": "S1.1.1"}  # fmt: skip


def landed(fleet: Fleet) -> int:
    return int(fleet.git("rev-list", "--count", "main"))


def fleet_is_up_again(fleet: Fleet) -> None:
    fleet.up("--no-patrol")
    fleet.wait("adam", "needs_review")


HOSTILE_PROMPT = "A \u202etask"


def _work_files(fleet: Fleet) -> Path:
    """What an agent runs to commit hostile content, names and subjects."""
    os.makedirs(fleet.dir / "given")
    message, content, names = (fleet.dir / "given" / name for name in ("message", "content", "name"))
    message.write_bytes(os.fsencode(f"{NAME.replace(chr(13), '')}\n\n{NAME}\n"))
    content.write_bytes(os.fsencode(f"{NAME}\n"))
    names.write_bytes(os.fsencode(NAME[:100]))
    script = fleet.dir / "given/work.sh"
    script.write_text(
        f'cp {content} "$(cat {names})"; cp {content} hostile; git add -A; {COMMIT} {message}\n'
        f'cp {content} "not committed $(cat {names})"; git checkout -q -B "llmc/$LLMC_WORKER"\n'
    )
    return script


def _write_logs(fleet: Fleet) -> None:
    actions = (
        "worker_added",
        "agent_reported",
        "task_failed",
        "accepted",
        "usage_recorded",
        "reset",
        "task_completed",
    )
    rows = [
        {"ts": time.time(), "seq": 10_000 + n, "worker": "adam", "reason": HOSTILE, "text": LONG, "action": action,
         "subject": HOSTILE, "model": HOSTILE, "task_id": "1", "cause": HOSTILE, "commit": "", HOSTILE: HOSTILE}
        for n, action in enumerate(actions)
        if action not in ("accepted", "usage_recorded")
    ]  # fmt: skip
    with (fleet.root / "logs/events.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    for name in (
        "adam.log",
        "auto.log",
        "daemon.jsonl",
        "overseer.log",
        "goals.log",
        "task_pool.log",
        "post_accept.log",
    ):
        with (fleet.root / "logs" / name).open("ab") as file:
            file.write(os.fsencode(f"{NAME}\n{NAME}\n"))


def _hostile_goal(fleet: Fleet) -> str:
    made = fleet.llmc("goal", "create", "--title", TEXT, "--no-plan", "--json", code=None)
    if made.code:
        made = fleet.llmc("goal", "create", "--title", "A \u202egoal", "--no-plan", "--json")
    goal_id = str(made.json["goalId"])
    mine = [
        replace(node(n), goal_id=goal_id, name=TEXT, objective=TEXT)
        for n in ("P1", "T1.1", "S1.1.1", "S1.1.2")
    ]
    told = Event(ts=2.0, type="plan.generated", goal_id=goal_id, data={"reason": TEXT})
    asks = replace(BLOCKED, text=TEXT, question=TEXT, options=(TEXT, "b"))
    one = replace(
        assignment(),
        goal_id=goal_id,
        work_node_id="S1.1.1",
        status=AssignmentStatus.BLOCKED,
        blocked_reason=asks,
    )
    store = GoalStore(fleet.root / ".llmc/overseer")
    store.apply(Change(nodes=tuple(mine), events=(told,)))
    store.apply(Change(assignments=(one,)))
    return goal_id


def in_state(fleet: Fleet, **fields: str) -> None:
    """Fields of adam's record, as in a state written by something else."""
    file = fleet.root / "state.json"
    state = json.loads(file.read_text())
    state["workers"]["adam"].update(fields)
    file.write_text(json.dumps(state))


def test_the_list_of_what_is_left_out_is_no_longer_than_needed() -> None:
    """Break: leave out a command that does not exist."""
    every = {words for words, _ in leaves(cli)}
    groups = set(itertools.chain.from_iterable([words.split()[:1] for words in every]))
    assert LEFT_OUT - every - groups == set()
    assert set(LAST) <= every
