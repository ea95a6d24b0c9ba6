"""What a contained program sees, and why one cannot be contained."""

from pathlib import Path
from struct import iter_unpack, pack

import pytest

from llmc.config.load import advice, check_text
from llmc.sandbox.rules import (
    Machine,
    Mount,
    View,
    arguments,
    call_filter,
    problem_before,
    problem_of_try,
)

LINUX = Machine(system="Linux", processor="x86_64")


def places(argv: list[str]) -> list[str]:
    """Path and kind of each mount, in order."""
    found, rest = [], list(argv)
    while rest:
        match rest.pop(0):
            case "--tmpfs" | "--proc" | "--dev" as kind:
                found.append(f"{kind[2:]} {rest.pop(0)}")
            case "--bind" | "--ro-bind" as kind:
                source, path = rest.pop(0), rest.pop(0)
                assert source == path
                found.append(f"{kind[2:]} {path}")
    return found


def test_what_is_inside_another_place_comes_after_it() -> None:
    """Break: no order in `arguments`: an empty home would cover the worktree in it."""
    mounts = (Mount("/home/p/w", True), Mount("/usr"), Mount("/home/p/w/.git"), Mount("/home/p/w/src"))
    found = places(arguments(View(mounts, empty=("/tmp", "/home/p"))))
    assert (
        found.index("tmpfs /home/p") < found.index("bind /home/p/w") < found.index("ro-bind /home/p/w/.git")
    )
    assert "ro-bind /usr" in found


def test_a_mount_that_changes_nothing_is_left_out() -> None:
    mounts = (Mount("/usr"), Mount("/usr/lib/x"), Mount("/a", True), Mount("/a/b"), Mount("/a/b/c"))
    found = places(arguments(View((*mounts, Mount("/a/b/c/d", True)), empty=())))
    assert found == ["bind /a", "ro-bind /a/b", "bind /a/b/c/d", "dev /dev", "proc /proc", "ro-bind /usr"]


def test_what_is_read_only_cannot_be_moved_away_with_its_directory() -> None:
    """Break: no `_in_place`: an agent renames `objects/info`, and writes its own `alternates`."""
    mounts = (Mount("/own", True), Mount("/own/config"), Mount("/own/objects/info/alternates"))
    found = places(arguments(View(mounts, empty=())))
    wanted = ["bind /own", "ro-bind /own/config", "bind /own/objects", "bind /own/objects/info"]
    assert found == ["dev /dev", *wanted, "ro-bind /own/objects/info/alternates", "proc /proc"]


def test_a_path_that_is_named_twice_is_as_writable_as_asked() -> None:
    assert places(arguments(View((Mount("/a", True), Mount("/a")), empty=())))[0] == "bind /a"


def test_no_capability_and_no_process_outside() -> None:
    """Break: leave out `--cap-drop`: a remount as root writes to the real file system."""
    found = arguments(View(()))
    at = found.index("--cap-drop")
    assert found[at + 1] == "ALL"
    assert {"--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--die-with-parent"} <= {
        *found
    }
    assert "--new-session" not in found  # without the terminal there is no SIGWINCH


NAMES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOWED, REFUSED, UNKNOWN, KILLED = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000


def judged(program: bytes, *, machine: int, number: int, given: tuple[int, int] = (0, 0)) -> int:
    """What the kernel would answer to a call."""
    data = pack("<II8xQQ", number, machine, *given)
    rows, at, loaded = list(iter_unpack("<HBBI", program)), 0, 0
    while True:
        code, if_so, if_not, value = rows[at]
        at += 1
        if code == 0x06:
            return int(value)
        if code == 0x20:
            loaded = int.from_bytes(data[value : value + 4], "little")
        else:
            holds = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[code]
            at += if_so if holds else if_not


@pytest.mark.parametrize(
    ("machine", "ioctl", "fcntl", "socket", "clone", "unshare"),
    [("x86_64", 16, 72, 41, 56, 272), ("aarch64", 29, 25, 198, 220, 97)],
)
def test_the_filter_refuses_what_no_namespace_keeps_in(
    machine: str, ioctl: int, fcntl: int, socket: int, clone: int, unshare: int
) -> None:
    """Break: make one jump of the program off by one."""
    program = call_filter(machine)
    assert program is not None
    name = NAMES[machine]
    for number, given, wanted in (
        (ioctl, (0, 0x5412), REFUSED),  # TIOCSTI
        (ioctl, (0, 0x541C), REFUSED),  # TIOCLINUX
        (ioctl, (0, 0x5413), ALLOWED),
        (ioctl, (40, 0), ALLOWED),
        (fcntl, (0, 1024), REFUSED),  # F_SETLEASE
        (fcntl, (0, 1040), REFUSED),  # F_SETDELEG
        (fcntl, (0, 1025), ALLOWED),
        (fcntl, (1024, 6), ALLOWED),  # F_SETLK
        (socket, (40, 1), REFUSED),  # AF_VSOCK
        (socket, (2, 0x5412), ALLOWED),
        (425, (0, 0), REFUSED),  # io_uring_setup
        (unshare, (0, 0), REFUSED),
        (250 if machine == "x86_64" else 219, (0, 0), REFUSED),  # keyctl
        (clone, (0x10000000 | 17, 0), REFUSED),  # CLONE_NEWUSER
        (clone, (0x01200011, 0), ALLOWED),  # as fork does
        (435, (0, 0), UNKNOWN),  # clone3
        (0, (40, 0x5412), ALLOWED),
        (0x40000000 | ioctl, (0, 0), KILLED),
    ):
        assert judged(program, machine=name, number=number, given=given) == wanted, (
            number,
            arguments,
        )
    assert judged(program, machine=0x40000003, number=1) == KILLED


def test_no_filter_for_an_unknown_machine() -> None:
    assert call_filter("riscv64") is None


@pytest.mark.parametrize(
    ("machine", "text"),
    [
        (Machine(system="Darwin", processor="arm64"), "on Darwin"),
        (Machine(system="Linux", processor="riscv64"), "on riscv64"),
        (Machine(system="Linux", processor="x86_64", has_bubblewrap=False), "not installed"),
    ],
)
def test_what_needs_no_try(machine: Machine, text: str) -> None:
    found = problem_before(machine)
    assert found is not None
    assert text in found.text


def test_a_machine_that_may_work_is_tried() -> None:
    assert problem_before(LINUX) is None


@pytest.mark.parametrize(
    ("setting", "fix"),
    [
        ({"in_container": True}, "--security-opt seccomp=unconfined"),
        ({"apparmor_restrict_unprivileged_userns": "1"}, "apparmor_restrict_unprivileged_userns=0"),
        ({"unprivileged_userns_clone": "0"}, "unprivileged_userns_clone=1"),
        ({"max_user_namespaces": "0"}, "max_user_namespaces=15000"),
        ({"max_user_namespaces": "96349", "unprivileged_userns_clone": "1"}, "to see the error"),
    ],
)
def test_a_failed_try_names_its_cause_and_the_fix(setting: dict[str, object], fix: str) -> None:
    machine = Machine(system="Linux", processor="x86_64", **setting)  # type: ignore[arg-type]
    found = problem_of_try(machine, ["bwrap: setting up uid map: Permission denied", ""])
    assert "Permission denied" in found.text
    assert fix in found.fix


def test_a_worker_may_differ_from_the_default() -> None:
    text = '[repo]\nsource = "/s"\n[defaults]\nsandbox = "auto"\n[workers.eve]\nsandbox = "off"\n[workers.adam]\n'
    config, problems = check_text(text, "config.toml")
    assert config is not None, problems
    assert [config.sandbox_of(name) for name in ("adam", "eve", "auto-1")] == ["auto", "off", "auto"]


@pytest.mark.parametrize(
    ("defaults", "checks", "wanted"), [("on", "", "on"), ("off", "auto", "auto"), ("on", "off", "off")]
)
def test_checks_follow_the_agents_unless_configured(defaults: str, checks: str, wanted: str) -> None:
    own = f'[sandbox]\nchecks = "{checks}"\n' if checks else ""
    config, problems = check_text(
        f'[repo]\nsource = "/s"\n[defaults]\nsandbox = "{defaults}"\n{own}', "config.toml"
    )
    assert config is not None, problems
    assert config.checks == wanted


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('read = ["data"]', "must be an absolute path"),
        ('read = ["~other/x"]', "must be an absolute path"),
        ('write = ["/srv/../home/p/llmc"]', "must be an absolute path"),
        ('read = ["/"]', '"/" must not contain the root (/home/p/llmc)'),
        ('read = ["/home/p"]', '"/home/p" must not contain the root (/home/p/llmc)'),
        ('read = ["~"]', '"~" must not contain the root (/home/p/llmc)'),
        ('write = ["/home/p/llmc/"]', "must not contain the root"),
        ('write = ["/srv/data", "/home/p/llmc/.llmc/overseer"]', "must be outside the root (/home/p/llmc)"),
        ('write = ["/home/p/src"]', "must not contain the source repository (/home/p/src/project)"),
        ('write = ["/home/p/src/project/build"]', "must be outside the source repository"),
        ('presets = ["gradle"]', "expected"),
    ],
)
def test_what_would_open_the_root_is_refused(line: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: no `opened_places` in config/load.py: an agent would write the state, or the user's hooks."""
    monkeypatch.setenv("HOME", "/home/p")
    text = f'[repo]\nsource = "~/src/project"\n[sandbox]\n{line}\n'
    config, (problem,) = check_text(text, "config.toml", Path("/home/p/llmc"))
    assert config is None
    assert said in problem.message
    assert problem.line == 4
    assert problem.key.startswith("sandbox.")


def test_a_link_into_the_root_is_refused_too(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / ".llmc").mkdir(parents=True)
    (tmp_path / "link").symlink_to(root / ".llmc")
    text = f'[repo]\nsource = "/s"\n[sandbox]\nread = ["{tmp_path}/link"]\n'
    config, (problem,) = check_text(text, "config.toml", root)
    assert config is None
    assert "must be outside the root" in problem.message


def test_other_places_are_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/p")
    line = 'read = ["~/.config/tool", "/home/p/src/project"]\nwrite = ["/srv/llmc", "~/llmc-data"]'
    text = f'[repo]\nsource = "~/src/project"\n[sandbox]\n{line}\n'
    config, problems = check_text(text, "config.toml", Path("/home/p/llmc"))
    assert config is not None, problems
    assert len(advice(config)) == 4  # none of them exists
