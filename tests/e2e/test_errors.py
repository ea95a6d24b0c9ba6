"""User errors: one clear line with the fix, the right exit code, and never a traceback."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmc.config.paths import Root
from llmc.records.store import Store
from tests.support import zygote
from tests.support.fleet import Fleet, Result
from tests.support.repos import Repo
from tests.support.waiting import wait_until

FAILED, USAGE, REFUSED, NOT_FOUND, LOCKED = 1, 2, 3, 4, 5


@pytest.fixture(scope="module")
def shared() -> Iterator[Fleet]:
    """One root with one offline worker; the tests that use it change nothing in it."""
    fleet = Fleet("scripted")
    fleet.set_up("adam")
    yield fleet
    fleet.close()


@pytest.fixture
def copy(shared: Fleet, tmp_path: Path) -> Path:
    """A root to damage: the files of the shared one, without its worktrees."""
    root = tmp_path / "root"
    keep = shutil.ignore_patterns(".worktrees", ".git")
    shutil.copytree(shared.root, root, ignore=keep)
    return root


def llmc(fleet: Fleet, *args: str, cwd: Path | None = None, **env: str) -> Result:
    """Like Fleet.llmc, for tests that check the exit code themselves."""
    return Result(zygote.run(list(args), cwd=cwd or fleet.source, env={**fleet.env, **env}))


def complaint(result: Result, code: int, *words: str) -> str:
    """The one line on stderr, which must contain all the words."""
    assert result.code == code, result
    assert "Traceback" not in result.err
    assert "bug in llmc" not in result.err
    lines = result.err.splitlines()
    assert len(lines) == 1, result
    assert lines[0].startswith("llmc: ")
    for word in words:
        assert word in lines[0], result
    return lines[0]


BAD_NAMES = [
    "../x",
    "a b",
    "UPPER",
    "overseer",
    "auto-1",
    "",
    "-x",
    "1a",
    "a" * 32,
    "ä",
    "a\n",
    "a;b",
    "$(x)",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_bad_worker_names(shared: Fleet, name: str) -> None:
    """Break: no check_worker_name in add_worker."""
    result = llmc(shared, "add", "--", name)
    line = complaint(result, USAGE, "invalid worker name")
    assert "reserved" in line or "lowercase letters" in line
    assert os.listdir(shared.root / ".worktrees") == ["adam"]
    assert not [p for p in os.listdir(shared.root / ".llmc/locks") if p not in LOCK_FILES]


LOCK_FILES = {"state.lock", "repo.lock", "config.lock", "accept-adam.lock", "worker-adam.lock", "daemon.lock"}

#: command line, exit code, words in the output
CASES: list[tuple[list[str], int, list[str]]] = [
    (["accept", "adm"], NOT_FOUND, ["no worker 'adm'", 'Did you mean "adam"?']),
    (["message", "adm", "hi"], NOT_FOUND, ['Did you mean "adam"?']),
    (["hold", "adm"], NOT_FOUND, ['Did you mean "adam"?']),
    (["release", "adm"], NOT_FOUND, ['Did you mean "adam"?']),
    (["peek", "adm"], NOT_FOUND, ['Did you mean "adam"?']),
    (["attach", "adm"], NOT_FOUND, ['Did you mean "adam"?']),
    (["wait", "adm", "--status", "idle"], NOT_FOUND, ['Did you mean "adam"?']),
    (["start", "-w", "adm", "-p", "x"], NOT_FOUND, ['Did you mean "adam"?']),
    (["start", "-w", "../../../x", "-p", "x"], NOT_FOUND, ["no worker"]),
    (["start", "-w", "", "-p", "x"], NOT_FOUND, ["no worker ''"]),
    (["accept", "zebra"], NOT_FOUND, ["no worker 'zebra'", "llmc add zebra"]),
    (["add", "adam"], REFUSED, ["already", "another name"]),
    (["start", "-p", "x"], NOT_FOUND, ["no worker is idle", "llmc up", "--new"]),
    (["start", "-w", "adam", "-p", "x"], REFUSED, ["its status is offline", "llmc up"]),
    (["message", "adam", "hi"], REFUSED, ["its status is offline", "llmc up"]),
    (["accept", "adam"], REFUSED, ["its status is offline", "needs_review"]),
    (["accept"], REFUSED, ["no worker is waiting for review", "llmc status"]),
    (["peek", "adam"], REFUSED, ["adam's agent is not running", "llmc up"]),
    (["attach", "adam"], REFUSED, ["adam's agent is not running", "llmc up"]),
    (["start", "-p", ""], USAGE, ["the prompt is empty"]),
    (["start", "-p", " \n\t "], USAGE, ["the prompt is empty"]),
    (["start", "-p", "a\x1b[201~b"], USAGE, ["control character (U+001B)", "line 1", "Remove the character"]),
    (["message", "adam", "a\n\x03"], USAGE, ["control character (U+0003)", "line 2"]),
    (["message", "adam", ""], USAGE, ["is empty"]),
    (["start", "-f", "/none/task.md"], NOT_FOUND, ["/none/task.md"]),
    (["start", "-f", "/"], USAGE, ["cannot read /", "directory"]),
    (["start", "-p", "x", "-f", "y"], USAGE, ["as text or as a file, not both"]),
    (["start"], USAGE, ["empty task"]),
    (["frobnicate"], USAGE, ["unknown command 'frobnicate'", "llmc --help"]),
    (["stauts"], USAGE, ["unknown command 'stauts'", 'Did you mean "status"?']),
    (["status", "--frob"], USAGE, ["--frob", "llmc status --help"]),
    (["accept", "adam", "eve"], USAGE, ["llmc accept --help"]),
    (["review"], REFUSED, ["no worker is waiting for review", "llmc status"]),
    (["review", "adma"], NOT_FOUND, ["no worker 'adma'", 'Did you mean "adam"?']),
    (["review", "--interface", "emacs"], USAGE, ["emacs", "difftastic"]),
    (["reject", "adam", "no good"], REFUSED, ["its status is offline", "Next: llmc up"]),
    (["reject", "not good enough"], REFUSED, ["cannot tell which worker", "llmc review"]),
    (["reject", "adma", "no good"], NOT_FOUND, ["no worker 'adma'"]),
    (["peek", "adam", "-n", "many"], USAGE, ["many", "llmc peek --help"]),
    (["--root"], USAGE, ["--root", "llmc --help"]),
    (["--rooot", "x", "status"], USAGE, ["--rooot"]),
    (["wait", "adam", "--status", "sleeping"], USAGE, ["unknown status sleeping", "needs_review"]),
    (["wait", "adam"], USAGE, ["specify what to wait for"]),
    (["wait"], USAGE, ["specify what to wait for"]),
    (["wait", "adam", "--status", "idle", "--timeout", "soon"], USAGE, ["--timeout", "soon"]),
    (["wait", "adam", "--status", "idle", "--timeout", "nan"], USAGE, ["--timeout", "nan"]),
    (["wait", "adam", "--status", "idle", "--timeout", "-1"], USAGE, ["--timeout"]),
    (["wait", "adam", "--status", "idle", "--timeout", "5"], FAILED, ["adam is offline"]),
    (["events", "--since", "yesterday"], USAGE, ["--since", "yesterday"]),
    (["--root", "/none", "status", "--json"], NOT_FOUND, ["/none (--root) is not an llmc root", "llmc init"]),
    (["--root", "/none", "events"], NOT_FOUND, ["/none"]),
    (["--root", "/etc/passwd", "up"], NOT_FOUND, ["/etc/passwd"]),
    (["config", "set", "repo.nonsense", "1"], NOT_FOUND, ["repo.nonsense"]),
    (["config", "get", "nonsense"], NOT_FOUND, ["nonsense"]),
    (["init"], REFUSED, ["already", "--target"]),
    (["init", "--source", "/none"], NOT_FOUND, ["/none", "--source"]),
]


@pytest.mark.req("1-143")
@pytest.mark.parametrize(
    ("argv", "code", "words"), CASES, ids=[" ".join(case[0])[:40] or "-" for case in CASES]
)
def test_one_clear_line_and_the_right_code(
    shared: Fleet, argv: list[str], code: int, words: list[str]
) -> None:
    """Break: change the exit_code of that class in base/errors.py, or leave a hint out."""
    more = {"LLMC_ROOT": ""} if argv[:1] != ["init"] else {"HOME": str(shared.home)}
    if argv == ["init"]:
        argv = ["init", "--target", str(shared.root)]
    complaint(llmc(shared, *argv, EDITOR="true", **more), code, *words)
    assert set(os.listdir(shared.root / ".llmc/locks")) <= LOCK_FILES


@pytest.mark.req("1-143")
@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["accept", "adm", "--json"], NOT_FOUND),
        (["start", "--json", "-w", "adam", "-p", "x"], REFUSED),
        (["frobnicate", "--json"], USAGE),
        (["status", "--json", "--frob"], USAGE),
        (["--root", "/none", "status", "--json"], NOT_FOUND),
        (["wait", "adm", "--status", "idle", "--json"], NOT_FOUND),
    ],
)
def test_json_errors_are_objects(shared: Fleet, argv: list[str], code: int) -> None:
    """Break: call print_error without print_json."""
    result = llmc(shared, *argv)
    complaint(result, code)
    body = result.json
    assert set(body) == {"error", "hint", "exit_code"}
    assert body["exit_code"] == code
    assert body["error"]
    assert body["hint"]


@pytest.mark.parametrize("argv", [["start", "-f"], ["message", "adam", "-f"]])
def test_a_prompt_file_that_is_not_text(shared: Fleet, tmp_path: Path, argv: list[str]) -> None:
    """Break: decode with errors="replace" in cli/arguments.py."""
    path = tmp_path / "task.bin"
    path.write_bytes(b"caf\xe9")
    complaint(llmc(shared, *argv, str(path)), USAGE, "is not UTF-8 text", "Convert the file")
    complaint(shared.llmc(*argv, str(path), code=None, LC_ALL="POSIX", PYTHONUTF8="0"), USAGE, "UTF-8")


@pytest.mark.parametrize(
    "argv",
    [
        ["accept", "adam"],
        ["start", "-p", "x"],
        ["down"],
        ["config", "set", "defaults.model", "x"],
        ["wait", "adam", "--status", "idle"],
        ["events"],
        ["events", "--json"],
        ["--root", "ROOT", "accept", "adam"],
        ["--root=ROOT", "wait", "adam", "--status", "idle"],
    ],
)
def test_agents_may_not_run_the_commands_of_people(shared: Fleet, argv: list[str]) -> None:
    """Break: take the first word without a dash as the command: `--root X accept` slips through."""
    argv = [arg.replace("ROOT", str(shared.root)) for arg in argv]
    result = llmc(shared, *argv, LLMC_WORKER="adam")
    complaint(result, REFUSED, "not available to agents", "worker adam")


def test_agents_may_ask_for_the_status(shared: Fleet) -> None:
    for argv in (["status"], ["status", "--json"], ["--root", str(shared.root), "status", "--json"]):
        assert "adam" in shared.llmc(*argv, LLMC_WORKER="adam").out


@pytest.mark.parametrize(
    "argv", [["status"], ["up"], ["start", "-p", "x"], ["accept", "adam"], ["add", "eve"]]
)
def test_a_broken_configuration(shared: Fleet, copy: Path, argv: list[str]) -> None:
    """Break: no try in load.check_text."""
    (copy / "config.toml").write_text('[repo]\nsource = "/x"\nvalidat = "x"\n[defaults]\nmodel = 5\n')
    result = llmc(shared, "--root", str(copy), *argv)
    assert result.code == FAILED
    assert "Traceback" not in result.err
    first, *problems = result.err.splitlines()
    assert "config.toml is invalid" in first
    assert any("config.toml:3: repo.validat" in line and '"validate"' in line for line in problems)
    assert any("config.toml:5: defaults.model" in line for line in problems)
    assert "llmc config edit" in problems[-1]


def test_a_broken_configuration_met_by_a_hot_command(shared: Fleet, copy: Path) -> None:
    """`status --json` has to apply hook events, and cannot. Break: let LlmcError out of fast.dispatch."""
    (copy / "config.toml").write_text("[repo\n")
    (copy / ".llmc/inbox/adam").mkdir(parents=True, exist_ok=True)
    (copy / ".llmc/inbox/adam/1700000000000000000-1.json").write_text("{}")
    for argv in (["status", "--json"], ["wait", "adam", "--status", "idle", "--timeout", "3"]):
        result = llmc(shared, "--root", str(copy), *argv)
        assert result.code == FAILED
        assert "config.toml:1: invalid TOML" in result.err
        assert "bug" not in result.err


STATES = {
    "cut": b'{"workers": {',
    "wrong": b'{"workers": []}',
    "record": b'{"workers": {"adam": {"status": "idle"}}}',
    "record2": b'{"workers": {"adam": 5}}',
    "text": b'{"workers": {}, "x": "\xff"}',
    "list": b"[]",
    "empty": b"",
}


@pytest.mark.parametrize("content", STATES.values(), ids=STATES.keys())
@pytest.mark.parametrize(
    "argv", [["status", "--json"], ["wait", "adam", "--status", "idle"], ["hold", "adam"]]
)
def test_a_corrupt_state(shared: Fleet, copy: Path, argv: list[str], content: bytes) -> None:
    """Break: let KeyError, TypeError or AttributeError out of fast.dispatch."""
    (copy / "state.json").write_bytes(content)
    result = llmc(shared, "--root", str(copy), *argv)
    complaint(result, FAILED, "state.json cannot be read", "state.json.bak")
    assert (copy / "state.json").read_bytes() == content


def test_a_state_of_a_newer_llmc(shared: Fleet, copy: Path) -> None:
    (copy / "state.json").write_text('{"version": 99, "workers": {}}')
    for argv in (["status", "--json"], ["status"], ["add", "eve"]):
        result = llmc(shared, "--root", str(copy), *argv)
        complaint(result, FAILED, "version 99", "Upgrade llmc")


def test_a_registration_that_cannot_be_read(shared: Fleet, copy: Path) -> None:
    """Break: raise Give for daemon.json too."""
    (copy / ".llmc/daemon.json").write_text("{")
    result = shared.llmc("--root", str(copy), "status", "--json")
    assert result.json["daemon"]["running"] is False


@pytest.fixture
def bin_without(tmp_path: Path) -> Any:
    """A PATH with everything except one program."""

    def make(missing: str) -> str:
        directory = tmp_path / f"without-{missing}"
        directory.mkdir()
        for name in ("git", "tmux", "sh", "env", "true"):
            if name != missing:
                (directory / name).symlink_to(str(shutil.which(name)))
        return str(directory)

    return make


@pytest.mark.parametrize("argv", [["peek", "adam"], ["up"], ["up", "--detach"]])
def test_tmux_is_missing(shared: Fleet, bin_without: Any, argv: list[str]) -> None:
    """Break: no ToolMissing in proc.run."""
    result = llmc(shared, *argv, PATH=bin_without("tmux"))
    assert result.code == FAILED
    assert "tmux is not installed" in result.err
    assert "apt-get install tmux" in result.err
    assert "bug" not in result.err


def test_status_needs_no_tmux(shared: Fleet, bin_without: Any) -> None:
    (worker,) = shared.llmc("status", "--json", PATH=bin_without("tmux")).json["workers"]
    assert worker["attached"] is None


@pytest.mark.parametrize("argv", [["add", "eve"], ["init"], ["status"]])
def test_git_is_missing(shared: Fleet, tmp_path: Path, bin_without: Any, argv: list[str]) -> None:
    result = llmc(shared, *argv, PATH=bin_without("git"))
    complaint(result, FAILED, "git is not installed", "apt-get install git")


def test_outside_of_everything(shared: Fleet, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for argv in (["status", "--json"], ["status"], ["up"]):
        result = llmc(shared, *argv, cwd=tmp_path, HOME=str(home))
        complaint(result, NOT_FOUND, f"{home}/llmc (the default location)", "llmc init")
    complaint(llmc(shared, "init", cwd=tmp_path), NOT_FOUND, "git repository", "--source")


def test_a_working_directory_that_is_gone(shared: Fleet, tmp_path: Path) -> None:
    """Break: no try around the working directory in locate_root."""
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    argv = ["sh", "-c", script, "sh", str(gone), sys.executable, "-P", "-m", "llmc"]
    for command in (["status", "--json"], ["status"]):
        done = subprocess.run([*argv, *command], env=shared.env, capture_output=True, text=True, timeout=60)
        complaint(Result(done), NOT_FOUND, "current directory no longer exists", "--root")
        gone.mkdir()
    named = [*argv, "--root", str(shared.root), "status", "--json"]
    done = subprocess.run(named, env=shared.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_names_that_are_not_text_are_refused(shared: Fleet, tmp_path: Path) -> None:
    """config.toml and state.json are UTF-8. Break: no _refuse_undecodable in create_root."""
    target = os.fsencode(tmp_path) + b"/r\xff"
    argv = [sys.executable, "-m", "llmc", "init", "--target", target]
    done = subprocess.run(argv, cwd=shared.source, env=shared.env, capture_output=True, timeout=60)
    text = subprocess.CompletedProcess(argv, done.returncode, done.stdout.decode(), done.stderr.decode())
    complaint(Result(text), USAGE, "UTF-8", "--target")
    assert not os.path.exists(target)


def test_a_busy_worker_names_who_has_it(shared: Fleet) -> None:
    """Break: change the exit_code of LockTimeout."""
    script = (
        "import sys, pathlib; from llmc.base.locks import *; sys.argv = ['llmc', 'accept', 'adam']\n"
        "with lock(pathlib.Path(sys.stdin.readline().strip()), Rank.STATE): print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin
    assert holder.stdout
    try:
        holder.stdin.write(f"{shared.root}/.llmc/locks/state.lock\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "held\n"
        patched = (
            "import llmc.records.store as s, functools; s.lock = functools.partial(s.lock, timeout_s=0.1)\n"
        )
        run = "from llmc.__main__ import main; import sys; sys.argv[1:] = ['hold', 'adam']; main()"
        done = subprocess.run(
            [sys.executable, "-c", patched + run],
            cwd=shared.source,
            env=shared.env,
            capture_output=True,
            text=True,
            timeout=60,
        )
        complaint(Result(done), LOCKED, f"pid {holder.pid} (llmc accept adam)", "or stop it")
    finally:
        holder.communicate(timeout=20)


def test_a_wrong_fault_is_a_usage_error(shared: Fleet) -> None:
    result = llmc(shared, "hold", "adam", LLMC_FAULT="state.wirte:before:kill")
    complaint(result, USAGE, "LLMC_FAULT", "state.write")


@pytest.mark.parametrize("argv", [["status", "--json"], ["status"], ["events"], ["config", "schema"]])
def test_a_reader_that_left_and_a_full_output(shared: Fleet, argv: list[str]) -> None:
    """Break: flush in main() without the try."""
    command = [sys.executable, "-m", "llmc", *argv]
    where: dict[str, Any] = {
        "cwd": shared.source,
        "env": shared.env,
        "stderr": subprocess.PIPE,
        "timeout": 60,
    }
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, **where)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, **where)
    assert done.returncode == FAILED
    assert done.stderr.startswith(b"llmc: cannot write")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "argv", [["wait", "adam", "--status", "idle"], ["events", "--follow"], ["status", "--watch"]]
)
def test_ctrl_c_ends_quietly(shared: Fleet, copy: Path, argv: list[str]) -> None:
    """Break: no `except KeyboardInterrupt` in main()."""
    state = json.loads((copy / "state.json").read_bytes())
    state["workers"]["adam"]["status"] = "working"
    (copy / "state.json").write_text(json.dumps(state))
    process = subprocess.Popen(
        [sys.executable, "-m", "llmc", "--root", str(copy), *argv],
        env=shared.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        # Asleep in its loop: in nanosleep it only waits for the next check.
        wait_until(lambda: "nanosleep" in Path(f"/proc/{process.pid}/wchan").read_text(), 30)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert err.strip() == ""


@pytest.fixture
def full_disk(shared: Fleet, copy: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of the root on a full file system, whose records name its own worktrees."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    mounted = subprocess.run(mount, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"NO SMALL DISK: mounting a tmpfs failed: {mounted.stderr.strip()}")
    try:
        shutil.copytree(copy, disk / "root")
        state = disk / "root/state.json"
        state.write_text(state.read_text().replace(f'"{shared.root}/', f'"{disk}/root/'))
        (disk / "root/state.json.bak").unlink()  # the new backup would free its space
        with (disk / "filler").open("wb", buffering=0) as filler:
            for size in (65536, 4096, 1):
                try:
                    while filler.write(b"x" * size):
                        pass
                except OSError:
                    continue
        yield disk / "root"
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk(shared: Fleet, full_disk: Path) -> None:
    """Break: let the OSError out of write_atomic."""
    before = (full_disk / "state.json").read_bytes()
    for argv in (["hold", "adam"], ["config", "set", "defaults.model", "x"], ["up", "--detach"]):
        result = shared.llmc("--root", str(full_disk), *argv, code=None)
        assert result.code == FAILED, result
        assert "the disk is full" in result.err or "No space left on device" in result.err, result
        assert "Free some space" in result.err
        assert "bug" not in result.err
    assert (full_disk / "state.json").read_bytes() == before
    assert shared.llmc("--root", str(full_disk), "status", "--json").json["workers"]
    (full_disk.parent / "filler").unlink()
    shared.llmc("--root", str(full_disk), "hold", "adam")
    assert Store(Root(full_disk)).worker("adam").held


def test_a_root_with_a_path_too_long_for_a_socket_works(scripted: Fleet) -> None:
    """Break: bind to the long path in Root.wake_socket."""
    scripted.root = scripted.dir / ("long-" + "x" * 120) / "root"
    scripted.set_up("adam")
    scripted.up("--no-patrol")
    wake_socket = Root(scripted.root).wake_socket()
    assert len(str(wake_socket)) < 100
    assert wake_socket.is_socket()
    scripted.llmc("start", "--prompt", "@say hello")
    scripted.wait("adam", "needs_input")
    scripted.llmc("down")
    assert not wake_socket.exists()


@pytest.mark.req("1-110")
def test_a_worker_that_is_idle_has_nothing_to_accept(scripted: Fleet) -> None:
    scripted.set_up("adam")
    scripted.up()
    complaint(scripted.llmc("accept", "adam", code=None), REFUSED, "its status is idle", "needs_review")
    assert "daemon already running" in scripted.llmc("up", "--detach").out


@pytest.mark.parametrize("gone", [".", ".git"])
def test_a_worktree_that_was_deleted(scripted: Fleet, gone: str) -> None:
    """Every command on its worker says so, with a working fix. Break: let git fail in a missing directory."""
    fleet = scripted.set_up("adam")
    fleet.up("--no-patrol")
    commit = "git -c user.name=W -c user.email=w@example.com commit -qm X"
    fleet.llmc("start", "--prompt", f"@sh echo x > x; git add x; {commit}")
    fleet.wait("adam", "needs_review")
    kept = fleet.dir / "kept"
    os.rename(fleet.worktree("adam") / gone, kept)
    commands = (
        *(("review", "adam"), ("rebase", "adam"), ("reject", "adam", "more"), ("message", "adam", "hi")),
        *(("accept", "adam"), ("pick", "adam", "--branch", "b")),
        *([("console", "adam")] if gone == "." else []),
    )
    for command in commands:
        done = fleet.llmc(*command, code=REFUSED)
        assert "adam's worktree is missing" in done.err, command
        assert "llmc doctor --repair" in done.err, command
        assert "git -C" not in done.err, command
    for command in (("peek", "adam"), ("logs", "adam"), ("hold", "adam"), ("release", "adam"), ("status",)):
        fleet.llmc(*command)
    fleet.llmc("doctor", "--repair", "--yes")
    fleet.llmc("review", "adam")
    fleet.wait("adam", "needs_review")
    fleet.llmc("accept", "adam")
    assert fleet.log()[0] == "X"


#: command line, words in the output; DIR is a new directory with a `file` in it
PATHS: list[tuple[list[str], list[str]]] = [
    (["tasks", "export", "DIR/file"], ["DIR/file", "Not a directory", "Check the path"]),
    (["tasks", "export", "DIR/" + "x" * 300], ["File name too long"]),
]


@pytest.mark.parametrize(("argv", "words"), PATHS, ids=["file", "long"])
def test_a_path_that_cannot_be_used(shared: Fleet, tmp_path: Path, argv: list[str], words: list[str]) -> None:
    """Break: leave OF_A_PATH out of cli/app.py."""
    (tmp_path / "file").touch()
    argv, words = ([word.replace("DIR", str(tmp_path)) for word in some] for some in (argv, words))
    complaint(llmc(shared, *argv), FAILED, *words)


def test_init_in_a_directory_that_is_gone(shared: Fleet, tmp_path: Path) -> None:
    """Break: leave _directory_is_gone out of cli/app.py."""
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    argv = ["sh", "-c", script, "sh", str(gone), sys.executable, "-P", "-m", "llmc", "init"]
    done = subprocess.run(argv, env=shared.env, capture_output=True, text=True, timeout=60)
    complaint(Result(done), NOT_FOUND, "current directory no longer exists", "existing directory")


@pytest.mark.parametrize(
    ("editor", "why"), [("nosuch-editor", "not installed"), ('vim "', "No closing quotation")]
)
def test_an_editor_that_does_not_run(shared: Fleet, copy: Path, editor: str, why: str) -> None:
    """Break: `config edit` without open_editor."""
    before = (copy / "config.toml").read_bytes()
    result = llmc(shared, "--root", str(copy), "config", "edit", EDITOR=editor)
    complaint(result, USAGE, "cannot run the editor", why, "$EDITOR", "config.toml was not changed")
    assert (copy / "config.toml").read_bytes() == before
    complaint(
        llmc(shared, "message", "adam", EDITOR=editor), USAGE, "cannot run the editor", "Nothing was sent"
    )


def test_a_configuration_that_is_not_utf8_is_fixed_with_the_command_in_the_hint(
    shared: Fleet, tmp_path: Path
) -> None:
    """Break: read config.toml as text in `config edit`."""
    root = tmp_path / "root"
    source = Repo(tmp_path / "source")
    source.commit("a.txt")
    assert llmc(shared, "init", "--target", str(root), cwd=source.path).code == 0
    config = root / "config.toml"
    good = config.read_bytes()
    config.write_bytes(good + b"# caf\xe9\n")
    shown = llmc(shared, "--root", str(root), "status").err
    assert "not valid UTF-8" in shown
    assert "llmc config edit" in shown
    kept = llmc(shared, "--root", str(root), "config", "edit", EDITOR="true")
    assert kept.code == FAILED
    assert "config.edit.toml" in kept.err
    assert "not valid UTF-8" in kept.err
    llmc(shared, "--root", str(root), "config", "edit", EDITOR="sed -i -e '$d'")
    assert config.read_bytes() == good


def test_a_shell_that_is_gone(shared: Fleet) -> None:
    """Break: exec the shell outside of the try."""
    result = llmc(shared, "console", "adam", SHELL="/gone")
    assert result.code == USAGE
    assert "bug in llmc" not in result.err
    assert "cannot run the shell /gone: No such file or directory. Set $SHELL" in result.err


def test_a_command_is_quoted_and_only_shown_if_it_works(shared: Fleet) -> None:
    """Break: `llmc add` for every unknown name; or an ID without quotes."""
    line = complaint(llmc(shared, "answer", "foo bar"), NOT_FOUND, "no worker 'foo bar'", "llmc status")
    assert "llmc add" not in line
    complaint(llmc(shared, "answer", "S1 1"), USAGE, "llmc answer 'S1 1'")
    complaint(llmc(shared, "up", "--auto", "--until", "0001-01-01"), USAGE, "--until", "07:30")
