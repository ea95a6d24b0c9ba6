"""tmux on a private server: what it reports, what it does not report, and what must not crash it."""

import os
import pty
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest

from llmc.base import proc
from llmc.base.errors import Refused, ToolFailed
from llmc.base.names import PaneId, SessionName
from llmc.base.panes import Pane
from llmc.base.tmux import Tmux, Unknown, exact
from tests.support.waiting import wait_until

ONE, TEN = SessionName("llmc-auto-1"), SessionName("llmc-auto-10")
SLEEP = ["sleep", "300"]
NOTHING = ["true"]


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A socket's path may have at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="llmc-x-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@pytest.fixture
def tmux(short_dir: Path) -> Iterator[Tmux]:
    made = Tmux(f"llmc-test-{short_dir.name}")
    yield made
    made.kill_server()


def touching(path: str) -> list[str]:
    """A command for a pane's death; the pane's id is appended."""
    return ["sh", "-c", f"touch '{path}'", "died"]


def start(tmux: Tmux, session: SessionName, cwd: str, argv: list[str], died: list[str] = NOTHING) -> PaneId:
    """A program in its own pane, marked with its session's name as its instance."""
    return tmux.launch(session, cwd, argv, died, instance=f"i-{session}", worker=str(session))


def agent(tmux: Tmux, session: SessionName) -> Pane | Unknown | None:
    return tmux.agent(session, session, PaneId("%x"), f"i-{session}")


def pane_of(tmux: Tmux, session: SessionName) -> Pane:
    pane = agent(tmux, session)
    assert isinstance(pane, Pane), pane
    return pane


def gone(session: SessionName) -> Pane:
    """A pane that no longer exists."""
    return Pane(PaneId("%99"), session, attached=False, dead=False, exit_code=None, pid=1, server_pid=1)


def wait_dead(tmux: Tmux, session: SessionName) -> None:
    wait_until(lambda: pane_of(tmux, session).dead)


@pytest.fixture
def fake(tmux: Tmux, short_dir: Path) -> Iterator[Callable[[str], None]]:
    """Puts our own `tmux` first on PATH."""
    with pytest.MonkeyPatch.context() as patch:

        def install(script: str) -> None:
            program = short_dir / "bin" / "tmux"
            program.parent.mkdir()
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
            patch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

        yield install


# What it reports, and what it does not report.


def test_no_server_is_empty(tmux: Tmux) -> None:
    assert tmux.panes() == {}
    assert agent(tmux, ONE) is None
    tmux.kill_session(ONE)
    tmux.kill_pane(gone(ONE))
    tmux.kill_server()


def test_what_is_remembered_is_that_an_agent_runs_and_no_more(
    tmux: Tmux, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: remember that an agent is gone: one that another command has launched since would be offline.

    Or do not check its process: a daemon then misses the end of an agent until patrol.
    """
    daemons = Tmux(tmux.server, remembers_s=60.0)
    start(daemons, ONE, "/", SLEEP)
    asked: list[int] = []
    listed = Tmux._list_panes
    monkeypatch.setattr(Tmux, "_list_panes", lambda self: asked.append(1) or listed(self))
    for _ in range(3):
        assert not pane_of(daemons, ONE).dead
    assert len(asked) == 1
    start(tmux, TEN, "/", SLEEP)  # by another process
    assert not pane_of(daemons, TEN).dead
    tmux.kill_session(TEN)
    wait_until(lambda: agent(daemons, TEN) is None)
    os.kill(pane_of(daemons, ONE).pid, signal.SIGKILL)
    wait_dead(daemons, ONE)


def test_a_server_that_was_killed_is_empty(tmux: Tmux) -> None:
    """Its socket file is still there: "no server running on", not "No such file"."""
    start(tmux, ONE, "/", SLEEP)
    pid = int(tmux.run("display-message", "-p", "#{pid}").stdout)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: tmux.panes() == {})


@pytest.mark.req("1-070")
@pytest.mark.parametrize(
    "script",
    [
        "exit 1",
        "echo 'lost server' >&2; exit 1",
        "echo 'server exited unexpectedly' >&2; exit 1",
        "echo 'error connecting to /tmp/x (Permission denied)' >&2; exit 1",
        "echo 'error connecting to /tmp/x (Too many open files)' >&2; exit 1",
        "kill -9 $$",
    ],
)
def test_a_tmux_that_fails_is_unknown(tmux: Tmux, fake: Callable[[str], None], script: str) -> None:
    """Breaks when any "error connecting" counts as no server: every worker would look dead."""
    fake(script)
    assert isinstance(tmux.panes(), Unknown)
    assert isinstance(agent(tmux, ONE), Unknown)


@pytest.mark.req("1-070")
def test_a_tmux_that_hangs_is_unknown(tmux: Tmux, fake: Callable[[str], None]) -> None:
    """Breaks when a timeout is not caught."""
    fake("exec sleep 300")
    run = Tmux.run

    def impatient(self: Tmux, *args: str, **rest: Any) -> proc.Done:
        return run(self, *args, **{**rest, "timeout_s": 0.2})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tmux, "run", impatient)
        found = tmux.panes()
    assert isinstance(found, Unknown)
    assert "timed out after" in found.reason


def test_a_kill_that_fails_is_said(tmux: Tmux, fake: Callable[[str], None]) -> None:
    fake("echo 'something else' >&2; exit 1")
    with pytest.raises(ToolFailed, match="something else"):
        tmux.kill_session(ONE)


@pytest.mark.parametrize("late", ["client-attached", "new-session"])
def test_a_launch_that_tmux_confirms_too_late_is_a_launch(
    tmux: Tmux, fake: Callable[[str], None], late: str
) -> None:
    """Break: give up a launch at any timeout: its agent runs, and its worker is said not to have started."""
    real = shutil.which("tmux")
    fake(f'case "$*" in *{late}*) {real} "$@"; exec sleep 300;; *) exec {real} "$@";; esac')
    run = Tmux.run

    def impatient(self: Tmux, *args: str, **rest: Any) -> proc.Done:
        return run(self, *args, **{**rest, "timeout_s": 2.0})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tmux, "run", impatient)
        pane_id = start(tmux, ONE, "/", SLEEP)
    assert pane_of(tmux, ONE).id == pane_id
    assert not pane_of(tmux, ONE).dead


def test_a_launch_that_tmux_did_not_do_has_failed(tmux: Tmux, fake: Callable[[str], None]) -> None:
    """Break: take any timeout of tmux for a launch."""
    real = shutil.which("tmux")
    fake(f'case "$*" in *new-session*) exec sleep 300;; *) exec {real} "$@";; esac')
    run = Tmux.run

    def impatient(self: Tmux, *args: str, **rest: Any) -> proc.Done:
        return run(self, *args, **{**rest, "timeout_s": 1.0})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tmux, "run", impatient)
        with pytest.raises(ToolFailed, match="timed out"):
            start(tmux, ONE, "/", SLEEP)


def test_no_screens_need_no_server(tmux: Tmux, fake: Callable[[str], None], short_dir: Path) -> None:
    """Break: run tmux without a command, which starts a server and asks for a session."""
    fake(f"touch {short_dir}/asked")
    assert tmux.capture_all([]) == {}
    assert not (short_dir / "asked").exists()


def test_the_size_of_a_pane_that_is_gone(tmux: Tmux) -> None:
    """Break: read the blank that tmux 3.3a prints for a missing pane as two numbers."""
    start(tmux, TEN, "/", SLEEP)
    with pytest.raises(Refused, match="llmc-auto-1's agent is not running"):
        tmux.size(gone(ONE))
    with pytest.raises(ToolFailed, match="can't find pane"):
        tmux.screen(gone(ONE))


# Exact targets.


def test_targets_are_exact(tmux: Tmux, tmp_path: Path) -> None:
    """Breaks when the target has no `=`: with auto-1 gone, auto-10 would be killed in its place."""
    start(tmux, TEN, "/", ["cat"])
    tmux.kill_session(ONE)
    assert not pane_of(tmux, TEN).dead
    start(tmux, ONE, "/", SLEEP)
    assert sessions(tmux) == {ONE, TEN}
    tmux.kill_session(ONE)
    assert sessions(tmux) == {TEN}


def sessions(tmux: Tmux) -> set[SessionName]:
    panes = tmux.panes()
    assert isinstance(panes, dict)
    return {pane.session for pane in panes.values()}


# The pane is the program.


@pytest.mark.req("2-027", "2-028")
@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("exit 130", 130)]
)
def test_exit_codes(tmux: Tmux, script: str, code: int) -> None:
    """Breaks when pane_dead_signal is not read: a killed agent would have no exit code."""
    start(tmux, ONE, "/", ["sh", "-c", script])
    wait_dead(tmux, ONE)
    wait_until(lambda: pane_of(tmux, ONE).exit_code is not None)
    assert pane_of(tmux, ONE).exit_code == code


@pytest.mark.req("1-070")
def test_a_living_pane_has_no_exit_code(tmux: Tmux) -> None:
    start(tmux, ONE, "/", SLEEP)
    found = pane_of(tmux, ONE)
    server = int(tmux.run("display-message", "-p", "#{pid}").stdout)
    known = {"attached": False, "dead": False, "exit_code": None, "pid": found.pid, "server_pid": server}
    assert found == Pane(PaneId("%0"), ONE, instance=f"i-{ONE}", worker=ONE, **known)  # type: ignore[arg-type]


@pytest.mark.req("1-059", "2-027")
def test_the_pane_s_process_is_the_program(tmux: Tmux, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when the command goes through a shell: the client's status file is found by the pane's pid."""
    monkeypatch.setenv("SHELL", "/bin/false")
    start(tmux, ONE, "/", SLEEP)
    command = Path(f"/proc/{pane_of(tmux, ONE).pid}/cmdline")
    wait_until(lambda: command.read_bytes() == b"sleep\x00300\x00")


NASTY = [
    "with space",
    "#{session_name}",
    "#(touch {dir}/injected)",
    "it's",
    'a"b',
    "$HOME`id`",
    "semi;",
    "back\\slash",
    "100%d",
    "~",
]


@pytest.mark.parametrize("name", NASTY)
def test_odd_directories_and_arguments(tmux: Tmux, short_dir: Path, name: str) -> None:
    """Breaks when `#` is not doubled (a directory name would be expanded or run), or a final `;` is bare."""
    name = name.format(dir=short_dir).replace("/", "_") if "{dir}" in name else name
    cwd = short_dir / name
    cwd.mkdir()
    out, died = cwd / "out", cwd / "died"
    program = ["sh", "-c", 'pwd -P > "$1"; printf "%s" "$2" >> "$1"', "sh", str(out), name]
    hook = ["sh", "-c", 'printf "%s" "$2" > "$1.new"; mv "$1.new" "$1"', "sh", str(died), name]
    start(tmux, ONE, str(cwd), program, hook)
    wait_until(lambda: tmux.panes() and died.exists())
    assert died.read_text() == name
    assert out.read_text() == f"{os.path.realpath(cwd)}\n{name}"
    assert not list(short_dir.rglob("injected"))


def test_a_program_without_arguments_may_have_an_odd_path(tmux: Tmux, short_dir: Path) -> None:
    program = short_dir / "my prog;"
    program.write_text("#!/bin/sh\nexit 9\n")
    program.chmod(0o755)
    start(tmux, ONE, "/", [str(program)])
    wait_dead(tmux, ONE)
    assert pane_of(tmux, ONE).exit_code == 9


@pytest.mark.parametrize("shell", ["/bin/false", "/bin/sh"])
def test_the_hook_runs_when_the_program_ends(
    tmux: Tmux, short_dir: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    """Breaks when the hook is not set in the call that starts the program, or runs in the user's shell."""
    monkeypatch.setenv("SHELL", shell)
    died = short_dir / "died"
    start(tmux, ONE, "/", ["true", "now"], touching(str(died)))
    wait_until(lambda: tmux.panes() and died.exists())


def test_a_missed_end_is_noticed_when_somebody_looks(tmux: Tmux, short_dir: Path) -> None:
    """Breaks without the nudge in `panes`: tmux 3.3a misses one exit in ten, without hook and code."""
    start(tmux, TEN, "/", SLEEP)
    for round in range(12):
        died = short_dir / f"died-{round}"
        start(tmux, ONE, "/", ["cat", "-"], touching(str(died)))
        tmux.send_keys(pane_of(tmux, ONE), "C-d")
        wait_dead(tmux, ONE)
        wait_until(lambda died=died: tmux.panes() and died.exists())  # type: ignore[misc]
        assert pane_of(tmux, ONE).exit_code in (0, 129)  # 129 where tmux closed the terminal first
        tmux.kill_session(ONE)


def test_a_server_that_is_just_ending_is_waited_for(
    tmux: Tmux, fake: Callable[[str], None], short_dir: Path
) -> None:
    """Breaks without the retry: a server exits with its last session, possibly during the next command."""
    real, seen = shutil.which("tmux"), short_dir / "seen"
    fake(f"[ -e {seen} ] && exec {real} \"$@\"; touch {seen}; echo 'server exited unexpectedly' >&2; exit 1")
    start(tmux, ONE, "/", SLEEP)
    seen.unlink()
    assert not pane_of(tmux, ONE).dead


def test_a_server_that_takes_its_time_to_end_is_waited_for(
    tmux: Tmux, fake: Callable[[str], None], short_dir: Path
) -> None:
    """Break: check a few times without a pause; `down` then leaves the server's socket behind."""
    start(tmux, ONE, "/", SLEEP)
    real, asked = shutil.which("tmux"), short_dir / "asked"
    asked.touch()
    fake(f"[ $(wc -l <{asked}) -ge 9 ] && exec {real} \"$@\"; echo >>{asked}; echo 'lost server' >&2; exit 1")
    assert not pane_of(tmux, ONE).dead


def test_the_hook_belongs_to_its_session(tmux: Tmux, short_dir: Path) -> None:
    start(tmux, ONE, "/", ["cat", "-"], touching(str(short_dir / "one")))
    start(tmux, TEN, "/", ["cat", "-"], touching(str(short_dir / "ten")))
    tmux.send_keys(pane_of(tmux, TEN), "C-d")
    wait_until(lambda: tmux.panes() and (short_dir / "ten").exists())
    assert not (short_dir / "one").exists()
    assert not pane_of(tmux, ONE).dead


# Keys and text.


@pytest.mark.req("1-058")
def test_paste_is_bracketed_and_exact(tmux: Tmux, short_dir: Path) -> None:
    """Breaks without -p: a program could not tell our text from keys."""
    got = short_dir / "got"
    reader = "stty raw -echo; printf '\\033[?2004h'; echo ready; exec cat > \"$1\""
    start(tmux, ONE, "/", ["sh", "-c", reader, "sh", str(got)])
    wait_until(lambda: "ready" in tmux.capture(pane_of(tmux, ONE)))
    text = "[llmc task-1]\ncaf\u00e9 \U0001f600 #{pid} $(id) 'q' \"d\" ;\\\n"
    assert tmux.paste(pane_of(tmux, ONE), "b1", text)
    wait_until(lambda: got.read_bytes().endswith(b"\x1b[201~"))
    assert got.read_bytes() == b"\x1b[200~" + text.replace("\n", "\r").encode() + b"\x1b[201~"
    assert tmux.run("list-buffers").stdout == "", "a prompt stayed in a buffer"


def test_paste_into_a_dead_pane(tmux: Tmux) -> None:
    """Breaks when the pane is not tested inside the server: tmux 3.3a crashes, with every agent."""
    start(tmux, TEN, "/", SLEEP)
    start(tmux, ONE, "/", ["sh", "-c", "exit 1"])
    wait_dead(tmux, ONE)
    pid = pane_of(tmux, TEN).pid
    assert tmux.paste(pane_of(tmux, ONE), "b1", "dead or alive") is False
    assert pane_of(tmux, TEN).pid == pid
    assert tmux.run("list-buffers").stdout == ""


def test_a_living_pane_that_shows_dead_is_alive(tmux: Tmux) -> None:
    start(tmux, SessionName("dead"), "/", ["cat", "-"])
    assert tmux.paste(pane_of(tmux, SessionName("dead")), "b1", "dead\n") is True


def test_capture(tmux: Tmux) -> None:
    script = "seq 1 150; printf '\\033[2mdim\\033[0m caf\u00e9 \u276f'; exec cat"
    start(tmux, ONE, "/", ["sh", "-c", script])
    wait_until(lambda: "dim" in tmux.capture(pane_of(tmux, ONE)))
    assert tmux.capture(pane_of(tmux, ONE)).rstrip().endswith("150\ndim caf\u00e9 \u276f")
    assert "\n50\n" not in tmux.capture(pane_of(tmux, ONE))
    assert "\n50\n" in tmux.capture(pane_of(tmux, ONE), history=120)
    assert "\x1b[2mdim" in tmux.capture(pane_of(tmux, ONE), styled=True)


# Its size.


def size(tmux: Tmux, target: str = "") -> str:
    shown = "#{window_width}x#{window_height}"
    return tmux.run("display-message", "-p", "-t", target or pane_of(tmux, ONE).id, shown).stdout.strip()


def test_what_a_person_types_works_in_a_shell_with_another_tmux_tmpdir(tmux: Tmux) -> None:
    """Break: name the server with -L, as the commands of llmc do."""
    start(tmux, ONE, "/", SLEEP)
    assert os.environ["TMUX_TMPDIR"]
    shown = subprocess.run(
        f"{tmux.by_hand} list-sessions -F '#S'", shell=True, capture_output=True, text=True
    )
    assert shown.stdout.split() == [ONE], shown.stderr


def clients(tmux: Tmux) -> list[str]:
    return tmux.run("list-clients", "-F", "#{client_name}").stdout.split()


@contextmanager
def attached(tmux: Tmux) -> Iterator[None]:
    """A user at a terminal of 80 by 24."""
    before = len(clients(tmux))
    leader, follower = pty.openpty()
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color"}
    del env["TMUX_TMPDIR"]
    client = subprocess.Popen(
        tmux.argv("attach-session", "-t", exact(ONE)),
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=env,
        start_new_session=True,
    )
    os.close(follower)
    try:
        wait_until(lambda: len(clients(tmux)) == before + 1)
        yield
        os.write(leader, b"\x02d")
        os.set_blocking(leader, False)
        wait_until(lambda: _drained(leader) and client.poll() is not None)
    finally:
        if client.poll() is None:
            client.kill()
        client.wait()
        os.close(leader)


def _drained(leader: int) -> bool:
    """Read what the client wrote: it would wait for that before it exits."""
    try:
        while os.read(leader, 65536):
            pass
    except OSError:
        pass
    return True


@pytest.mark.req("2-006")
def test_a_pane_is_wide_and_wide_again_after_a_person(tmux: Tmux) -> None:
    """Breaks without the client-detached hook: the agent's screen would stay as narrow as the terminal.

    A terminal of 24 rows has 23 for the pane: the last one is the status line.
    """
    start(tmux, ONE, "/", SLEEP)
    assert size(tmux) == "500x100"
    for _ in range(2):
        with attached(tmux):
            wait_until(lambda: size(tmux) == "80x23")
        wait_until(lambda: size(tmux) == "500x100")


def test_a_person_s_windows_keep_their_size(tmux: Tmux) -> None:
    """Breaks when the hooks target the current window:
    each detach would resize the user's own to the agent's width.
    """
    start(tmux, ONE, "/", SLEEP)
    tmux.run("new-session", "-d", "-s", "own", "-x", "70", "-y", "20", *SLEEP)
    window = tmux.run("new-window", "-t", exact(ONE), "-P", "-F", "#{pane_id}", *SLEEP).stdout.strip()
    with attached(tmux):
        wait_until(lambda: size(tmux, window) == "80x23")
    wait_until(lambda: size(tmux) == "500x100")
    assert size(tmux, window) == "80x23"
    assert size(tmux, "=own:") == "70x20"


def test_the_last_of_two_people_leaves_it_wide(tmux: Tmux) -> None:
    """Breaks when each detach makes it wide, while another user is still attached."""
    start(tmux, ONE, "/", SLEEP)
    with attached(tmux):
        with attached(tmux):
            wait_until(lambda: size(tmux) == "80x23")
        tmux.run("run-shell", "true")  # what the detach started is over
        assert size(tmux) == "80x23"
    wait_until(lambda: size(tmux) == "500x100")


def test_a_second_launch_is_a_window_beside_what_a_person_has(tmux: Tmux) -> None:
    """Breaks when a launch wants the session for itself; the user's windows in it would have to go."""
    tmux.run("new-session", "-d", "-s", str(ONE), *SLEEP)
    mine = start(tmux, ONE, "/", ["sh", "-c", "exit 7"])
    wait_dead(tmux, ONE)
    assert size(tmux) == "500x100"
    assert pane_of(tmux, ONE) == tmux.panes()[mine]  # type: ignore[index]
    wait_until(lambda: pane_of(tmux, ONE).exit_code == 7)
    tmux.kill_pane(pane_of(tmux, ONE))
    assert sessions(tmux) == {ONE}
    assert agent(tmux, ONE) is None


def test_another_program_in_the_pane_gets_nothing(tmux: Tmux) -> None:
    """Breaks when the condition is not checked inside tmux: the agent's keys go to the shell in its place."""
    start(tmux, ONE, "/", SLEEP)
    seen = pane_of(tmux, ONE)
    tmux.run("respawn-pane", "-k", "-t", seen.id, "cat")
    assert agent(tmux, ONE) is None
    assert tmux.send_keys(seen, "x", "Enter") is False
    assert tmux.paste(seen, "b1", "text") is False
    tmux.kill_pane(seen)
    assert seen.id in tmux.panes()  # type: ignore[operator]
    assert tmux.run("capture-pane", "-p", "-t", seen.id).stdout.strip() == ""
    assert tmux.run("list-buffers").stdout == ""
    missing = seen._replace(id=PaneId("%99"))
    assert tmux.send_keys(missing, "x") is False
    assert tmux.paste(missing, "b2", "text") is False


def test_a_window_that_two_sessions_show(tmux: Tmux) -> None:
    """Breaks when the last row of `list-panes` counts: a user attached to the other session is missed."""
    start(tmux, ONE, "/", SLEEP)
    tmux.run("new-session", "-d", "-s", "a|b", *SLEEP)
    tmux.run("new-session", "-d", "-s", "zz", *SLEEP)
    for other in ("=a|b:9", "=zz:9"):
        tmux.run("link-window", "-s", pane_of(tmux, ONE).id, "-t", other)
    assert not pane_of(tmux, ONE).attached
    with attached(tmux):
        assert pane_of(tmux, ONE).attached


def test_a_person_s_configuration_is_not_read(
    tmux: Tmux, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks without -f /dev/null."""
    (short_dir / ".tmux.conf").write_text(
        "set -g remain-on-exit off\nset -g prefix C-a\nset -g base-index 5\n"
    )
    monkeypatch.setenv("HOME", str(short_dir))
    start(tmux, ONE, "/", SLEEP)
    assert tmux.run("show-options", "-gv", "prefix").stdout.strip() == "C-b"


def test_the_server_gets_a_minimal_environment(tmux: Tmux, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when the caller's environment is passed on: keys would be readable in every pane."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    start(tmux, ONE, "/", SLEEP)
    assert "secret" not in tmux.run("show-environment", "-g").stdout
    assert b"secret" not in Path(f"/proc/{pane_of(tmux, ONE).pid}/environ").read_bytes()


def test_tmux_is_installed() -> None:
    assert shutil.which("tmux"), "these tests need tmux"
