"""Who runs a command: agents and users are told apart by their processes, whatever their variables say."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from llmc import hook_client
from llmc.cli.app import FOR_AGENTS
from llmc.cli.commands import COMMANDS
from llmc.config.root_layout import tmux_server
from tests.support.fleet import REAL_IN_SOAK, Fleet
from tests.support.waiting import wait_until

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"

#: leaves its parent, its session, its terminal and its variables, then becomes the program
DETACH = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
parent = os.getpid()
if os.fork(): os._exit(0)
while os.getppid() == parent: time.sleep(0.01)
os.execve(sys.argv[1], sys.argv[1:], {})
"""

#: how an agent tries to look like a user; {run} is a script that runs the command and records its exit code
DISGUISES = {
    "as it is": "{run}",
    "cleared": "LLMC_WORKER= LLMC_INSTANCE= {run}",
    "no variables": "env -i {run}",
    "the supervisor": "LLMC_WORKER=overseer {run}",
    "another worker": "LLMC_WORKER=adam LLMC_INSTANCE={instance} {run}",
    "another session": "env -i setsid -w {run}",
    "in the background": "(env -i nohup {run} > /dev/null 2>&1 &)",
    "left by its parent": "{python} -c {detach} {run}",
    "a terminal of its own": "env -i {script} -qec {run} /dev/null < /dev/null",
    "another program": "{python} -c 'import os,sys; os.execve(sys.argv[1], sys.argv[1:], dict())' {run}",
    "a job of our tmux": "tmux -L {server} run-shell -b 'env -i {run}'",
    "a tmux of its own": "env -i tmux -L llmc-false-{server} -f /dev/null new-session -d {run}",
    "a name for its tmux": "env -i tmux -L {server}x -f /dev/null new-session -d {run}",
}


class Agent:
    """A worker whose agent runs what the test says, and reports how each command ended."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.fleet, self.name = fleet, name
        self.dir = fleet.dir / f"of-{name}"
        self.dir.mkdir()

    def script(self, label: str, *args: str) -> Path:
        """A program that runs an llmc command and saves its exit code and output."""
        at = self.dir / label.replace(" ", "-")
        argv = [sys.executable, "-m", "llmc", "--root", str(self.fleet.root), *args]
        at.write_text(
            f"#!/bin/sh\nPATH={shlex.quote(self.fleet.env['PATH'])} HOME={self.fleet.home} {shlex.join(argv)} > {at}.out 2>&1\n"
            f"echo $? > {at}.tmp; mv {at}.tmp {at}.code\n"
        )
        at.chmod(0o755)
        return at

    def ended(self, at: Path) -> tuple[int, str]:
        code = Path(f"{at}.code")
        wait_until(code.exists)
        return int(code.read_text()), Path(f"{at}.out").read_text()

    def does(self, *lines: str, timeout: float = 60) -> None:
        """Have the agent run these lines as one tool call each."""
        self.fleet.llmc(
            "start", "--worker", self.name, "--prompt", "\n".join(f"@sh {line}" for line in lines)
        )
        self.fleet.wait(self.name, "needs_input", timeout)


def waiting_work(fleet: Fleet) -> None:
    """Work of adam's that waits for review."""
    fleet.llmc("start", "--worker", "adam", "--prompt", f"@sh echo x > x; git add x; {COMMIT} 'Not reviewed'")
    fleet.wait("adam", "needs_review")


def instance(fleet: Fleet, name: str) -> str:
    return str(json.loads((fleet.root / "state.json").read_text())["workers"][name]["instance"])


def disguised(agent: Agent, how: str, *args: str) -> tuple[str, Path]:
    """The line that an agent would run, and where its outcome goes."""
    run = agent.script(how, *args)
    line = DISGUISES[how].format(
        run=run,
        python=sys.executable,
        detach=shlex.quote(DETACH),
        script="script",
        instance=instance(agent.fleet, "adam"),
        server=tmux_server(str(agent.fleet.root)),
    )
    at = agent.dir / f"{run.name}.sh"
    at.write_text(line + "\n")
    return f"sh {at}", run


def test_no_disguise_makes_an_agent_a_person(scripted: Fleet) -> None:
    """Break: use environ alone in callers.mark; the innermost mark instead of the outermost; no subreaper in
    launch.py; no `is_job` in sessions/caller.py.
    """
    scripted.set_up("adam", "baker")
    scripted.up("--no-patrol")
    waiting_work(scripted)
    baker = Agent(scripted, "baker")
    tries = {how: disguised(baker, how, "accept", "adam") for how in DISGUISES}
    baker.does(*(line for line, _ in tries.values()))
    try:
        ended = {how: baker.ended(run) for how, (_, run) in tries.items()}
    finally:
        for name in (f"llmc-false-{tmux_server(str(scripted.root))}", f"{tmux_server(str(scripted.root))}x"):
            scripted.end_tmux(name)
    assert {how: code for how, (code, _) in ended.items()} == dict.fromkeys(DISGUISES, 3), ended
    assert all("worker baker" in said or "cannot tell who" in said for _, said in ended.values()), ended
    assert scripted.log() == ["First commit"]
    assert scripted.status("adam")["status"] == "needs_review"


#: cases that may depend on how the real client starts its tools
OF_TOOLS = ("no variables", "in the background", "left by its parent")


@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_on_both_agents(fleet: Fleet) -> None:
    """The real client starts its tools in its own way. Break: as above."""
    fleet.set_up("adam")
    fleet.up("--no-patrol")
    adam = Agent(fleet, "adam")
    tries = {how: disguised(adam, how, "hold", "adam") for how in OF_TOOLS}
    adam.does(*(line for line, _ in tries.values()))
    for how, (_, run) in tries.items():
        code, said = adam.ended(run)
        assert (code, "not available to agents (worker adam)" in said) == (3, True), (how, said)
    assert not fleet.status("adam")["held"]


#: runs command lines in forks of one process, like tests/support/zygote.py: importing llmc each time is slow
EVERY = """
import json, os, sys
from llmc.__main__ import main
from llmc.cli.app import load
from llmc.cli.commands import COMMANDS

for name in COMMANDS:
    load(name)

def become(words, output):
    for fd in (1, 2):
        os.dup2(output, fd)
    sys.argv = ["llmc", "--root", {root!r}, *words]
    main()
    sys.exit(0)

found = dict()
for words in json.loads({lines!r}):
    ours, theirs = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(ours)
        become(words, theirs)
    os.close(theirs)
    with open(ours) as file:
        said = file.read()
    found[" ".join(words)] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said
with open({out!r}, "w") as file:
    json.dump(found, file)
"""


def test_what_is_for_agents_and_what_is_not(scripted: Fleet) -> None:
    """Break: leave the guard out for one command; believe LLMC_WORKER in sessions/caller.py.

    `--help`: a command that is not refused does no harm here.
    """
    scripted.set_up(
        "adam", config={"auto.task_list_id": "list", "auto.tasks_root": str(scripted.dir / "tasks")}
    )
    scripted.llmc("tasks", "add", "A task")
    scripted.up("--no-patrol")
    adam = Agent(scripted, "adam")
    refused = [[name] for name in COMMANDS if name not in FOR_AGENTS]
    refused += [["tasks", name] for name in ("add", "import", "release", "requeue", "approve", "graph")]
    refused = [[*words, "--help"] for words in refused]
    refused += [
        ["events"],
        ["wait", "adam", "--status", "idle,working"],
    ]  # not refused by click where no caller is an agent
    out, script = adam.dir / "found.json", adam.dir / "every.py"
    script.write_text(EVERY.format(root=str(scripted.root), lines=json.dumps(refused), out=str(out)))
    # Commands for agents only work without variables, too.
    granted = [
        ["status"],
        ["status", "--json"],
        ["tasks", "list"],
        ["tasks", "show", "1"],
        ["report", "progress", "half"],
    ]
    runs = [adam.script(" ".join(one), *one) for one in granted]
    path = f"PATH={shlex.quote(scripted.env['PATH'])} HOME={scripted.home}"
    adam.does(f"env -i {path} {sys.executable} {script}", *(f"env -i {run}" for run in runs))
    ended = json.loads(out.read_text())
    assert {words: code for words, (code, _) in ended.items()} == {" ".join(words): 3 for words in refused}, (
        ended
    )
    for words, (_, said) in ended.items():
        name = words.removesuffix(" --help").partition(" adam")[0]
        assert f"`llmc {name}` is not available to agents" in said, (words, said)
    assert [adam.ended(run)[0] for run in runs] == [0] * len(runs), [adam.ended(run) for run in runs]
    (reported,) = scripted.events("agent_reported")
    assert reported["worker"] == "adam"


@pytest.mark.skipif(hook_client.PORTABLE, reason="without /proc, the sender trusts its environment")
def test_an_agent_speaks_for_itself_and_not_for_another_one(scripted: Fleet) -> None:
    """A forged Stop would end adam's turn. Break: use our own LLMC_INSTANCE in hook_client.main.

    Or refuse every `llmc hook`.
    """
    scripted.set_up("adam", "baker")
    scripted.up("--no-patrol")
    go = scripted.dir / "go"
    scripted.llmc("start", "--worker", "adam", "--prompt", f"@sh until [ -e {go} ]; do sleep 0.05; done")
    scripted.wait("adam", "working")
    baker = Agent(scripted, "baker")
    inbox, socket = scripted.root / ".llmc/inbox/adam", scripted.root / ".llmc/run/wake.sock"
    own = '{"hook_event_name":"PostCompact","of":"baker"}'
    forged = f"LLMC_WORKER=adam LLMC_INSTANCE={instance(scripted, 'adam')}"
    payload = """echo '{"hook_event_name":"Stop"}' |"""
    (baker.dir / "send.sh").write_text(
        f"{payload} {forged} {sys.executable} -I -S {hook_client.__file__} {inbox} {socket}\n"
        f"{payload} {forged} {sys.executable} -m llmc hook {inbox} {socket} 2> {baker.dir}/said\n"
        f"echo $? > {baker.dir}/code\n"
        f"echo '{own}' | {sys.executable} -m llmc hook {inbox.with_name('baker')} {socket} && touch {baker.dir}/sent\n"
    )
    baker.does(f"sh {baker.dir}/send.sh")
    scripted.wake("adam")  # the sender woke the daemon for baker
    wait_until(lambda: scripted.events("hook_ignored"))
    assert (baker.dir / "code").read_text().strip() == "3"
    assert "baker can send hook events only to its own inbox" in (baker.dir / "said").read_text()
    assert (baker.dir / "sent").exists(), "it speaks for itself"
    wait_until(lambda: [row for row in scripted.events("hook_received") if row["hook"] == "PostCompact"])
    assert scripted.status("adam")["status"] == "working"
    assert "is only for agents" in scripted.llmc("hook", str(inbox), str(socket), code=3, stdin="{}").err
    go.touch()
    scripted.wait("adam", "needs_input")


def test_a_variable_makes_nobody_the_supervisors_agent(scripted: Fleet) -> None:
    """Break: return Kind.OVERSEER for a mark of that name, without checking its pane."""
    scripted.set_up("adam")
    told = scripted.llmc("reset", "adam", code=3, LLMC_WORKER="overseer").err
    assert "is not running in that agent's pane" in told
    assert "your own shell" in told


@pytest.mark.soak
def test_a_window_a_console_and_a_git_hook_are_a_persons(scripted: Fleet) -> None:
    """Break: treat every process below llmc's tmux server as an agent's; set LLMC_WORKER in the console's
    variables; refuse below an llmc command.
    """
    scripted.set_up("adam")
    scripted.up("--no-patrol")
    person = Agent(scripted, "adam")
    held, split = person.script("hold", "hold", "adam"), person.script("let go", "release", "adam")
    scripted.tmux("new-window", "-d", "-t", scripted.session("adam"), str(held))
    assert person.ended(held)[0] == 0, "a window of the worker's session"
    scripted.tmux("split-window", "-d", "-t", scripted.session("adam"), str(split))
    assert person.ended(split)[0] == 0, "a pane beside the agent"
    again, release = person.script("again", "hold", "adam"), person.script("release", "release", "adam")
    scripted.llmc("console", "adam", SHELL=str(again))
    assert person.ended(again)[0] == 0, "a console"
    scripted.llmc("release", "adam")
    waiting_work(scripted)
    hook = scripted.source / ".git/hooks/post-merge"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{person.script('status', 'tasks', 'list', '--help')}\n{release}\n")
    hook.chmod(0o755)
    scripted.llmc("accept", "adam")
    assert scripted.log()[0] == "Not reviewed"


def test_code_of_the_repository_is_no_person(scripted: Fleet) -> None:
    """A worker's own check runs when it is validated. Break: use only LLMC_INSTANCE in callers.mark."""
    scripted.set_up("adam", "baker", config={"repo.validate": "sh check.sh"})
    scripted.up("--no-patrol")
    baker = Agent(scripted, "baker")
    run = baker.script("accept", "reset", "baker")
    prompt = f"@sh echo 'env -i {run}' > check.sh; git add check.sh; {COMMIT} 'A check'"
    scripted.llmc("start", "--worker", "adam", "--prompt", prompt)
    scripted.wait("adam", "needs_review")
    scripted.llmc("accept", "adam")
    code, said = baker.ended(run)
    assert (code, "not available to agents (worker adam)" in said) == (3, True), said
