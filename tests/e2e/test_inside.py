"""`llmc` inside a contained agent: what agents may do works through its inbox; nothing else does."""

import base64
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import pytest

import llmc
from llmc.base.processes import is_alive
from llmc.config.root_layout import tmux_server
from tests.e2e.test_web import Server
from tests.support.contained import needs_bubblewrap
from tests.support.fleet import REAL_IN_SOAK, Fleet
from tests.support.waiting import wait_until

pytestmark = needs_bubblewrap

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"
CONTAINED = {"defaults.sandbox": "on", "auto.task_list_id": "plan"}
#: both agents, in `make soak` only
BOTH_IN_SOAK = [
    pytest.param("scripted", marks=pytest.mark.soak),
    pytest.param("claude", marks=[pytest.mark.real_client, pytest.mark.soak]),
]


def said(fleet: Fleet, *commands: str) -> list[tuple[int, str]]:
    """The exit code, output and errors of each command of adam's agent. Its work then waits for review."""
    steps = [
        f"( {command} ) > said{number} 2>&1; echo $? > code{number}"
        for number, command in enumerate(commands)
    ]
    tree = fleet.worktree("adam")
    work = f"@sh {'; '.join(steps)}; git add -A; {COMMIT} 'Said'"
    fleet.llmc("start", "--worker", "adam", "--prompt", work)
    fleet.wait("adam", "needs_review", 90)
    numbers = range(len(commands))
    return [(int((tree / f"code{n}").read_text()), (tree / f"said{n}").read_text()) for n in numbers]


def program(text: str, interpreter: str = "python3") -> str:
    """A command that runs this Python program; a directive of the scripted agent is one line."""
    code = base64.b64encode(dedent(text).encode()).decode()
    return f"{interpreter} -c \"import base64; exec(base64.b64decode('{code}'))\""


@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_an_agent_reports_and_looks_and_proposes(fleet: Fleet) -> None:
    """Break: no LLMC_INBOX in sessions.py, no requests.answer in the daemon's lanes, or `_mark` for a contained worker."""
    fleet.set_up("adam", config=CONTAINED)
    fleet.llmc("tasks", "add", "First", "-d", "of a person")
    fleet.up()
    fleet.llmc("start", "--prompt", "@task Mine\n@sh llmc report blocked 'Which color?'")
    assert fleet.wait("adam", "needs_input")["reason"] == "blocked"
    (reported,) = fleet.events("agent_reported")
    assert (reported["worker"], reported["kind"], reported["text"]) == ("adam", "blocked", "Which color?")
    assert reported["message_id"]
    tasks = fleet.llmc("tasks", "list", "--json").json["tasks"]
    assert [(row["subject"], row["state"]) for row in tasks] == [("First", "ready"), ("Mine", "proposed")]
    (proposed,) = fleet.events("task_proposed")
    assert (proposed["worker"], proposed["subject"]) == ("adam", "Mine")
    fleet.llmc("reset", "adam")
    found = said(
        fleet,
        "llmc status",
        "llmc status --json",
        "llmc tasks list --json --state ready",
        "env -i $(command -v llmc) tasks show 1",
        "env -i $(command -v llmc) report progress half",
        "llmc status --watch",
        "llmc accept adam",
        "llmc tasks approve 2",
        "LLMC_WORKER=eve llmc report done",
    )
    assert [code for code, _ in found] == [0, 0, 0, 0, 0, 3, 3, 3, 3], found
    texts = [text for _, text in found]
    assert "adam" in texts[0]
    assert json.loads(texts[1])["workers"][0]["status"] == "working"
    assert fleet.record("adam")["instance"] not in texts[1], "the mark of a launch is its own secret"
    assert [row["subject"] for row in json.loads(texts[2])["tasks"]] == ["First"]
    assert "of a person" in texts[3]
    assert "not available to agents (worker adam)" in texts[6]
    assert "`llmc tasks approve` is not available to agents" in texts[7]
    assert [row["text"] for row in fleet.events("agent_reported")] == ["Which color?", "half"]
    assert fleet.events("hook_ignored") == []
    assert not forged_items(fleet)
    assert list((fleet.root / ".llmc/inbox/adam").iterdir()) == []


def forged_items(fleet: Fleet) -> list[str]:
    items = fleet.llmc("status", "--json").json["attention"]
    return [item["who"] for item in items if item["kind"] == "forged"]


#: what no sender creates, and what a sender creates for another worker or another launch
FORGED = """
    import json, os, socket, time
    inbox, mark, wake = (os.environ["LLMC_" + name] for name in ("INBOX", "INSTANCE", "WAKE"))
    report = {"hook_event_name": "Report", "kind": "done", "text": "FORGED", "no_changes": True}
    number = iter(range(10**6))
    def name(end="json"):
        return f"{inbox}/{time.time_ns()}-{next(number)}.{end}"
    def put(path, **fields):
        with open(path, "w") as file:
            json.dump(fields, file)
    put(name(), worker="eve", instance=mark, payload=report)
    put(name(), worker="adam", instance="0" * 12, payload=report)
    put(name(), worker="adam", instance="", payload=report)
    put(name(), worker="adam", instance=mark, payload={"hook_event_name": "PaneDied"})
    lie = {"hook_event_name": "SessionStart", "session_id": "s", "transcript_path": "/etc/passwd"}
    put(name(), worker="adam", instance=mark, payload=lie)
    task = {"hook_event_name": "TaskCreated", "task_id": "1", "task_subject": "FORGED"}
    put(name(), worker="adam", instance="0" * 12, payload=task)
    put(name("ask"), worker="eve", instance=mark, argv=["status"])
    put(name("ask"), worker="adam", instance="0" * 12, argv=["status"])
    put(name("ask"), worker="adam", instance=mark, argv=["accept", "eve", "--yes"])
    for end in ("json", "ask", "answer"):
        os.symlink("/etc/passwd", name(end))
        os.mkfifo(name(end))
        os.makedirs(name(end) + "/inner")
        with open(name(end), "w") as file:
            file.truncate(1 << 40)
    for odd in ("notes.txt", ".hidden", "1.json", "x" * 200, "\\n"):
        open(f"{inbox}/{odd}", "w").close()
    for n in range(3000):
        with open(f"{inbox}/{1000 + n}-1.json", "w") as file:
            file.write("no event")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.setblocking(False)
    for n in range(5000):
        try:
            sock.sendto((b"eve", b"", os.urandom(100), b"x" * 60000, b"adam")[n % 5], wake)
        except BlockingIOError:
            pass
    for path in ("state.json", ".llmc/stop.json", ".llmc/inbox/eve/1-1.json"):
        try:
            put(os.environ["LLMC_ROOT"] + "/" + path, worker="eve", instance=mark, payload=report)
        except OSError:
            pass
"""


def test_nothing_that_an_agent_makes_up_is_believed(scripted: Fleet) -> None:
    """And none of it blocks the daemon.

    Break: trust the name in a file, read the whole inbox at once, open something that is not a regular file,
    or take the task of an earlier launch.
    """
    scripted.set_up("adam", "eve", config=CONTAINED)
    scripted.llmc("tasks", "add", "First")
    scripted.up("--no-patrol")
    eve = scripted.record("eve")
    said(scripted, program(FORGED))
    wait_until(lambda: forged_items(scripted) == ["adam"])
    assert scripted.events("agent_reported") == []
    assert scripted.events("task_proposed") == []
    assert {**scripted.record("eve"), "metered": None} == {
        **eve,
        "metered": None,
    }  # the daemon counts in its own time
    assert scripted.record("adam")["transcript_path"].startswith(f"{scripted.root}/.llmc/home/adam/")
    assert scripted.record("adam")["status"] == "needs_review"
    ignored = {row.get("why", "") for row in scripted.events("hook_ignored")}
    expected = [
        "the event names eve, not adam",
        "from an earlier launch",
        "from another pane",
        "the conversation is not in the agent's configuration directory",
        "a request that claims to be from eve",
        "a request from an earlier launch",
    ]
    assert [why for why in expected if why not in ignored] == []
    assert len(scripted.events("hook_ignored")) < 200, "a flood is reported in a few lines"
    assert scripted.log() == ["First commit"]
    # The other worker is served as usual, and this one's next launch starts with an empty inbox.
    scripted.llmc("start", "--worker", "eve", "--prompt", f"@sh echo e > e; git add e; {COMMIT} 'Of eve'")
    scripted.wait("eve", "needs_review")
    scripted.llmc("reset", "adam")
    scripted.llmc("down")
    scripted.up()
    assert list((scripted.root / ".llmc/inbox/adam").iterdir()) == []
    assert not forged_items(scripted)


#: no command of `llmc`, of a copy without its guard, or of its modules lands another worker's work
COPIED = """
    import glob, os, re, shutil, subprocess, sys
    package, root = sys.argv[1], os.environ["LLMC_ROOT"]
    shutil.copytree(package, "copied/llmc", ignore=shutil.ignore_patterns("__pycache__"))
    for path in ("copied/llmc/cli/app.py", "copied/llmc/cli/accept_work.py"):
        text = open(path).read().replace("    refuse_agents(ctx)", "    pass")
        text = text.replace("if roots.caller().kind is not roots.Kind.PERSON:", "if False:")
        open(path, "w").write(text)
    # A root of its own making at the same path: what it can write there, nobody else sees.
    for name, text in (("config.toml", "[repo]\\nsource = '" + sys.argv[2] + "'\\n"), ("state.json", "{}")):
        try:
            open(root + "/" + name, "x").write(text)
        except OSError as error:
            print(error)
    bare = {"PATH": os.defpath, "HOME": "/", "PYTHONPATH": "copied"}
    for words in (["--root", root, "accept", "eve", "--yes"], ["--root", root, "undo", "--yes"]):
        done = subprocess.run([sys.executable, "-m", "llmc", *words], env=bare)
        print("COPIED", done.returncode)
    shutil.rmtree("copied")
"""
MODULES = """
    import sys
    from pathlib import Path
    from llmc.api import acceptance
    from llmc.config.paths import Root
    from llmc.records.store import Store
    from llmc.repo.project import open_project
    root = sys.argv[1]
    with Store(Root(Path(root))).transaction() as tx:
        tx.update("eve", status="idle")
    acceptance.accept(open_project(root), "eve", print)
"""
#: checks every process it sees, and tries to trace those it does not
TRACE = """
    import ctypes, os, signal, sys
    libc = ctypes.CDLL(None, use_errno=True)
    hidden = sys.argv[1]
    for pid in (name for name in os.listdir("/proc") if name.isdigit()):
        for inner in ("root", "cwd"):
            if os.path.exists(f"/proc/{pid}/{inner}{hidden}"):
                print("SEEN", pid)
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                if os.path.exists(f"/proc/{pid}/fd/{fd}{hidden}"):
                    print("SEEN", pid, fd)
        except OSError:
            pass
    for pid in map(int, sys.argv[2:]):
        if os.path.exists(f"/proc/{pid}"):
            continue  # a process in here that has the same number
        for act in (lambda: os.kill(pid, signal.SIGKILL), lambda: os.kill(-pid, signal.SIGKILL), lambda: os.pidfd_open(pid)):
            try:
                act()
                print("REACHED", pid)
            except OSError:
                pass
        if libc.ptrace(16, pid, 0, 0) == 0 or libc.ptrace(0x4206, pid, 0, 0) == 0:
            print("TRACED", pid)
"""
#: without a cookie, with an invented one, and with a page's used link
BROWSE = """
    import http.client, os, sys
    port, home = int(sys.argv[1]), sys.argv[2]
    for cookie in ("", f"llmc-{port}=" + "0" * 43):
        for path in ("/w/eve/accept", "/w/eve/undo", "/w/adam/start"):
            try:
                made = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                origin = {"origin": f"http://127.0.0.1:{port}", "cookie": cookie}
                made.request("POST", home + path, body="commit=x&text=hello", headers=origin)
                if made.getresponse().status in (200, 202):
                    print("ORDERED", path)
            except OSError as error:
                print(error)
"""


@pytest.mark.parametrize("fleet", BOTH_IN_SOAK, indirect=True)
def test_no_disguise_lands_another_worker_s_work(fleet: Fleet) -> None:
    """By construction: the agent sees no state, no tmux, no other process. The guard only says so clearly."""
    fleet.set_up("adam", "eve", config=CONTAINED)
    fleet.llmc("tasks", "add", "First")
    fleet.up()
    fleet.llmc("start", "--worker", "eve", "--prompt", f"@sh echo e > e; git add e; {COMMIT} 'Of eve'")
    fleet.wait("eve", "needs_review")
    eve, root, python = fleet.record("eve"), fleet.root, sys.executable
    tmux, package = tmux_server(str(root)), Path(llmc.__file__).parent
    pane = fleet.tmux("display-message", "-p", "-t", fleet.session("adam"), "#{pane_pid} #{pid}").split()
    other = fleet.tmux("display-message", "-p", "-t", fleet.session("eve"), "#{pane_pid}").strip()
    inner = (root / ".llmc/home/eve.pid").read_text().split()[0]
    outside = [*pane, other, inner, str(fleet.daemon_pid()), str(os.getpid())]
    before = [path.stat().st_ino for path in (root / "config.toml", root / ".llmc/root-id")]
    guarded = [
        "llmc accept eve --yes",
        f"env -i {root}/.llmc/bin/llmc accept eve",
        f"cd / && llmc --root {root} accept eve",
        f"cd /tmp && {python} -P -m llmc accept eve",
        f"env -u LLMC_WORKER -u LLMC_INSTANCE -u LLMC_INBOX {python} -m llmc accept eve",
        f"LLMC_WORKER= LLMC_INSTANCE= LLMC_INBOX= HOME={fleet.home} PATH=/usr/bin:/bin {root}/.llmc/bin/llmc accept eve",
        "LLMC_WORKER=overseer llmc accept eve",
        "setsid -w llmc accept eve",
        "llmc answer eve yes",
        "llmc tasks approve 1",
        "llmc undo --yes",
        "llmc reset eve",
        "llmc events",
    ]
    others = [
        "unshare -Urpf --mount-proc llmc accept eve",
        "(setsid sh -c 'sleep 0.3; llmc accept eve; env -i $(command -v llmc) accept eve' &) ; sleep 1; false",
        "nohup llmc accept eve & wait $!",
        f'echo \'exec llmc accept eve\' > f; sh f; rm f; {python} -c \'import os; os.execlp("llmc", "x", "accept", "eve")\'',
        f"{program(MODULES, python)} {root}",
        f"tmux -L {tmux} run-shell 'llmc accept eve'",
        f"tmux -L {tmux} new-window 'llmc accept eve'",
        f"llmc hook {root}/.llmc/inbox/eve {root}/.llmc/run/wake.sock < /dev/null",
        "crontab -l; systemd-run --user llmc accept eve; at now < /dev/null; ssh -o BatchMode=yes localhost true",
        f"for pid in {' '.join(outside)}; do ls /proc/$pid/root{root}/state.json; done; false",
    ]
    told = [
        f"{program(COPIED, python)} {package} {fleet.source}",
        f"{program(TRACE)} {fleet.source}/README.md {' '.join(outside)}",
    ]
    with serving(fleet) as server:
        told.append(f"{program(BROWSE)} {server.port} '{server.home}'")
        found = said(fleet, *guarded, *others, *told)
    refused = found[: len(guarded)]
    assert [code for code, _ in refused] == [3] * len(guarded), refused
    assert all("agents" in text or "agent's pane" in text for _, text in refused), refused
    assert [code for code, _ in found[len(guarded) : -len(told)] if code == 0] == [], found
    copied, traced, browsed = (text for _, text in found[-len(told) :])
    assert "COPIED" in copied
    assert "COPIED 0" not in copied
    assert not {"SEEN", "REACHED", "TRACED"} & {*traced.split()}, traced
    assert "ORDERED" not in browsed
    assert all(is_alive(int(pid)) for pid in outside)
    own = {"applied_events": (), "metered": None}  # from eve's own turn, which llmc may have read later
    assert {**fleet.record("eve"), **own} == {**eve, **own}
    assert fleet.log() == ["First commit"]
    assert [path.stat().st_ino for path in (root / "config.toml", root / ".llmc/root-id")] == before
    states = {row["id"]: row["state"] for row in fleet.llmc("tasks", "list", "--json").json["tasks"]}
    assert states == {"1": "ready"}
    fleet.llmc("accept", "eve")
    assert fleet.log() == ["Of eve", "First commit"]


@contextmanager
def serving(fleet: Fleet) -> Iterator[Server]:
    server = Server(fleet)
    try:
        yield server
    finally:
        server.process.terminate()
        server.process.communicate()
        server.errors.close()


@pytest.mark.soak
def test_a_signal_to_all_ends_its_own_agent_and_nobody_else(scripted: Fleet) -> None:
    scripted.set_up("adam", "eve", config=CONTAINED)
    scripted.up()
    scripted.llmc(
        "start", "--worker", "adam", "--prompt", "@sh python3 -c 'import os; os.kill(1, 9)'; sleep 1"
    )
    scripted.wait("adam", "needs_input")
    scripted.llmc("message", "adam", "@sh python3 -c 'import os; os.kill(-1, 9)'; sleep 30")
    scripted.wait("adam", "offline")
    assert scripted.has_daemon()
    assert scripted.record("eve")["status"] == "idle"
    assert is_alive(int((scripted.root / ".llmc/home/eve.pid").read_text().split()[0]))
    scripted.llmc("up", "--detach")
    assert scripted.wait("adam", "needs_input")


@pytest.mark.soak
def test_pipes_and_links_in_its_home_hold_up_nobody(scripted: Fleet) -> None:
    """Break: `path.open` in agents/claude/transcripts.py: the daemon waits for a writer of the pipe."""
    scripted.set_up("adam", "eve", config=CONTAINED)
    scripted.up()
    home = scripted.root / ".llmc/home/adam"
    theirs = scripted.home / "theirs.jsonl"
    theirs.write_text(
        json.dumps({"type": "assistant", "message": {"content": "PRIVATE", "model": "m"}}) + "\n"
    )
    replace = (
        f"cd {home}; rm -rf projects sessions; mv projects p; mv sessions s; ln -s {scripted.home} projects; "
        f"for f in projects/*/*.jsonl sessions/*; do rm -f $f; mkfifo $f; done"
    )
    found = said(scripted, replace, f"ls -l {home}")
    assert "Device or resource busy" in found[0][1]
    scripted.llmc("start", "--worker", "eve", "--prompt", f"@sh echo e > e; git add e; {COMMIT} 'Of eve'")
    scripted.wait("eve", "needs_review")
    scripted.llmc("logs", "adam", code=None, timeout=20)
    scripted.llmc("status", timeout=20)
    scripted.llmc("accept", "eve", timeout=40)
    link = f"cd {home}/projects/*/; for f in *.jsonl; do rm -f $f; ln -s {theirs} $f; done"
    scripted.llmc("message", "adam", f"@sh {link}", code=None, timeout=60)
    scripted.llmc("reset", "adam", timeout=60)
    assert "PRIVATE" not in scripted.llmc("logs", "adam", code=None).out
