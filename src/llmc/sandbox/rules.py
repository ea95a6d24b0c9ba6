"""What a contained program sees and may write, as arguments of bubblewrap; and why bubblewrap fails. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from struct import pack
from typing import NamedTuple

from msgspec import Struct

#: nothing else in /etc: it also holds passwords and keys
ETC = (
    *("alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "default/locale", "fonts"),
    *("gai.conf", "gitconfig", "group", "host.conf", "hostname", "hosts", "inputrc", "java", "ld.so.cache"),
    *(
        "ld.so.conf",
        "ld.so.conf.d",
        "locale.alias",
        "locale.conf",
        "localtime",
        "mime.types",
        "nsswitch.conf",
    ),
    *(
        "os-release",
        "passwd",
        "pki/ca-trust",
        "pki/tls/certs",
        "profile",
        "profile.d",
        "protocols",
        "resolv.conf",
    ),
    *("services", "shells", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone"),
)
#: the part that git needs: each mount takes a tenth of a millisecond
ETC_OF_GIT = ("alternatives", "gitconfig", "ld.so.cache", "localtime", "nsswitch.conf", "passwd")
#: the system's own directories; some are links if /usr is merged
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt")
#: kernel settings, which root may write even without capabilities; bubblewrap covers only some of these
KERNEL = tuple(
    f"/proc/{name}"
    for name in ("acpi", "asound", "bus", "driver", "fs", "irq", "mtrr", "scsi", "sys", "sysrq-trigger")
)
#: empty, writable, and gone with the program
SCRATCH = ("/tmp", "/var/tmp", "/run")


def is_of_system(path: str) -> bool:
    """Whether a path is one of the system's directories, or in one."""
    return any(path == one or path.startswith(f"{one}/") for one in SYSTEM)


def contains_any(path: str, places: Iterable[str]) -> bool:
    """Whether one of these places is the path or below it; `/` contains every place."""
    return path == "/" or any(place == path or place.startswith(f"{path}/") for place in places)


_NAMESPACES = (
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    "--unshare-net",  # a loopback of its own, and no other network
)
#: for root, too: with capabilities a program could mount the real file system again
_LIMITS = ("--die-with-parent", "--cap-drop", "ALL")


class Mount(NamedTuple):
    """A file or directory that a contained program sees."""

    path: str
    writable: bool = False
    #: what the program sees there; "" for what is at the same path outside
    source: str = ""


class View(Struct, frozen=True):
    """Everything that a contained program sees besides its own /proc and /dev."""

    mounts: tuple[Mount, ...]
    #: empty directories, writable, and gone with the program
    empty: tuple[str, ...] = SCRATCH
    #: path and target
    links: tuple[tuple[str, str], ...] = ()


def arguments(view: View) -> list[str]:
    """The arguments of bubblewrap. What is inside another place comes after it, and so covers that part of it."""
    placed = [(path, ["--tmpfs", path]) for path in view.empty]
    placed += [(path, ["--symlink", target, path]) for path, target in view.links]
    for mount in _in_place(_widest(view.mounts, view.empty)):
        kind = "--bind" if mount.writable else "--ro-bind"
        placed.append((mount.path, [kind, mount.source or mount.path, mount.path]))
    placed += [("/proc", ["--proc", "/proc"]), ("/dev", ["--dev", "/dev"])]
    in_order = sorted(placed, key=lambda one: one[0].split("/"))
    return [*(word for _, words in in_order for word in words), *_NAMESPACES, *_LIMITS]


def _widest(mounts: Iterable[Mount], empty: Sequence[str]) -> list[Mount]:
    """Each path once, and only if it changes the view: not below a mount with the same access, unless covered there."""
    kept: list[Mount] = []
    by_path = {mount.path: mount for mount in sorted(mounts)}  # of two mounts of one path, the writable one
    for mount in sorted(by_path.values(), key=lambda one: one.path.split("/")):
        around = [one for one in kept if mount.path.startswith(f"{one.path}/")]
        covers = [path for path in empty if mount.path.startswith(f"{path}/")]
        is_covered = bool(around) and any(path.startswith(f"{around[-1].path}/") for path in covers)
        if mount.source or not around or is_covered or around[-1].writable != mount.writable:
            kept.append(mount)
    return kept


def _in_place(mounts: list[Mount]) -> list[Mount]:
    """These mounts, and one for every directory between a writable place and a mount inside it.

    A mount point cannot be renamed or removed, but a directory around it can, and the mount goes with it.
    """
    between = []
    for mount in mounts:
        around = [one for one in mounts if mount.path.startswith(f"{one.path}/")]
        if not around or not around[-1].writable:
            continue
        place = around[-1].path
        for part in mount.path.removeprefix(place).split("/")[1:-1]:
            place = f"{place}/{part}"
            between.append(Mount(place, True))
    known = {mount.path for mount in mounts}
    return [*mounts, *(mount for mount in dict.fromkeys(between) if mount.path not in known)]


#: for each machine: its AUDIT_ARCH, and the numbers of ioctl, fcntl, socket, clone and unshare
_MACHINES = {"x86_64": (0xC000003E, 16, 72, 41, 56, 272), "aarch64": (0xC00000B7, 29, 25, 198, 220, 97)}
#: add_key, request_key and keyctl: no namespace separates the keyrings of the user's session
_KEYRINGS = {"x86_64": (248, 249, 250), "aarch64": (217, 218, 219)}
_CLONE3, _CLONE_NEWUSER = 435, 0x10000000
_X32_CALLS, _IO_URING_SETUP = 0x40000000, 425
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_F_SETLEASE, _F_SETDELEG = 1024, 1040
_AF_VSOCK = 40
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
#: refused with EPERM; unknown with ENOSYS, after which the C library uses the older call
_ALLOW, _REFUSE, _UNKNOWN, _KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
#: offsets of a call's number, its machine, and its first and second argument
_NUMBER, _MACHINE, _FIRST, _SECOND = 0, 4, 16, 24


def call_filter(machine: str) -> bytes | None:
    """A seccomp program that refuses what no namespace contains; None for an unknown machine.

    - Typing into the terminal (TIOCSTI, TIOCLINUX): the program shares the terminal of its pane, and a shell outside
      would read the input.
    - Leases, even on files that are read-only inside: opening such a file outside waits until the lease is released.
    - vsock, which reaches the host of a virtual machine, and io_uring, which opens sockets past this filter.
    - The keyrings of the user.
    - User namespaces: in one, a program could remove the mounts that protect files. clone3 is reported as unknown,
      because a filter does not see its flags.

    System calls of another machine have other numbers: they kill the program.
    """
    if machine not in _MACHINES:
        return None
    name, ioctl, fcntl, socket, clone, unshare = _MACHINES[machine]
    judged = (
        (socket, _FIRST, _EQUAL, (_AF_VSOCK,)),
        (ioctl, _SECOND, _EQUAL, (_TIOCSTI, _TIOCLINUX)),
        (fcntl, _SECOND, _EQUAL, (_F_SETLEASE, _F_SETDELEG)),
        (clone, _FIRST, _ANY_BIT, (_CLONE_NEWUSER,)),
    )
    rows = [(_LOAD, 0, 0, _MACHINE), (_EQUAL, 1, 0, name), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    rows += [(_AT_LEAST, 0, 1, _X32_CALLS), (_RETURN, 0, 0, _KILL)]
    for number in (_IO_URING_SETUP, unshare, *_KEYRINGS[machine]):
        rows += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE)]
    rows += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _UNKNOWN)]
    for number, place, test, values in judged:
        refused = [row for value in values for row in ((test, 0, 1, value), (_RETURN, 0, 0, _REFUSE))]
        of_call = [(_LOAD, 0, 0, place), *refused, (_RETURN, 0, 0, _ALLOW)]
        rows += [(_EQUAL, 0, len(of_call), number), *of_call]
    rows.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(pack("HBBI", *row) for row in rows)


class Machine(Struct, frozen=True):
    """What decides whether bubblewrap works here."""

    #: as the kernel calls it
    system: str
    processor: str
    has_bubblewrap: bool = True
    in_container: bool = False
    #: kernel settings; "" for those that it does not have
    max_user_namespaces: str = ""
    unprivileged_userns_clone: str = ""
    apparmor_restrict_unprivileged_userns: str = ""


class Problem(Struct, frozen=True):
    """Why agents cannot be contained here, and what to do."""

    text: str
    fix: str


def problem_before(machine: Machine) -> Problem | None:
    """The problem, if it is known without a try."""
    if machine.system != "Linux":
        return Problem(f"agents cannot be contained on {machine.system}", "use Linux, or a Linux container")
    if machine.processor not in _MACHINES:
        return Problem(
            f"agents cannot be contained on {machine.processor} processors", "use x86_64 or aarch64"
        )
    if not machine.has_bubblewrap:
        return Problem(
            "bubblewrap is not installed", "install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap)"
        )
    return None


def problem_of_try(machine: Machine, said: Sequence[str]) -> Problem:
    """Why a contained program did not run, from what it printed and the settings of the kernel."""
    last = next((line.strip() for line in reversed(said) if line.strip()), "no output")
    why = f"bubblewrap cannot contain a program here: {last[:300]}"
    if machine.in_container:
        return Problem(
            why,
            "start the container with `--security-opt seccomp=unconfined --security-opt apparmor=unconfined "
            "--security-opt systempaths=unconfined`, or rely on the container itself to contain the agents",
        )
    if machine.apparmor_restrict_unprivileged_userns not in ("", "0"):
        return Problem(
            why,
            "allow user namespaces: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 "
            "(Ubuntu 24.04 and later), or give /usr/bin/bwrap an AppArmor profile with `userns,`",
        )
    if machine.unprivileged_userns_clone == "0":
        return Problem(why, "allow user namespaces: sudo sysctl -w kernel.unprivileged_userns_clone=1")
    if machine.max_user_namespaces == "0":
        return Problem(why, "allow user namespaces: sudo sysctl -w user.max_user_namespaces=15000")
    return Problem(why, "run `bwrap --ro-bind / / --unshare-pid --proc /proc true` to see the error")


# Which of the user's environment variables a contained program gets.
#
# Most of a user's secrets are in files, which the program does not see, or in variables, which it would: tokens,
# database URLs, the socket of an SSH agent. So a variable is passed on only if it is known to be needed, or if the user
# names it in `sandbox.env`.

#: names, or prefixes with a `*`
USUAL = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "COLORTERM", "LANG", "LANGUAGE", "LC_*", "TZ"),
    *("EDITOR", "VISUAL", "PAGER", "NO_COLOR", "FORCE_COLOR", "CLICOLOR*", "COLUMNS", "LINES", "CI"),
    # where the programs on PATH and their parts are, and which certificates they trust
    *("VIRTUAL_ENV", "CONDA_PREFIX", "JAVA_HOME", "GOROOT", "GOPATH", "CARGO_HOME", "RUSTUP_HOME", "NVM_DIR"),
    *("NODE_OPTIONS", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NIX_SSL_CERT_FILE", "LOCALE_ARCHIVE", "LD_LIBRARY_PATH"),
    *("GIT_AUTHOR_*", "GIT_COMMITTER_*", "GIT_CONFIG_NOSYSTEM", "GIT_TERMINAL_PROMPT"),
    # llmc's own; not LLMC_GIT_PASSWORD
    *("LLMC_PORTABLE", "LLMC_SCRIPTED_*", "LLMC_STUCK_S", "LLMC_TRACE"),
)


def passed_on(environment: Mapping[str, str], more: Iterable[str]) -> dict[str, str]:
    """The usual variables, and those with these names."""
    wanted = (*USUAL, *more)
    exact = {name for name in wanted if not name.endswith("*")}
    starts = tuple(name.removesuffix("*") for name in wanted if name.endswith("*"))
    return {
        name: value
        for name, value in environment.items()
        if name in exact or (starts and name.startswith(starts))
    }
