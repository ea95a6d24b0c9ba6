"""The command of a worker's pane: reads a launch spec, deletes it, and becomes the agent or its holder.

    python -I -S launch.py <spec>

tmux cannot remove variables, shows them on its command line, and refuses long ones, so the environment comes in a
private file.

Without a sandbox it becomes the agent. The agent adopts the orphans among its descendants, so llmc finds all its
processes by their ancestors, even those that detach. Such orphans stay as zombies until the agent exits.

With a sandbox it stays as the holder of bubblewrap, which neither forwards signals nor reports a death by signal. The
proxy that is the agent's only network (sandbox/proxy.py) is also its child, needs no daemon, and ends with the agent.
"""

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # the module takes 5 ms
    from typing import Any

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
#: how long bubblewrap may take to start the program
START_S = 10.0
#: a proxy that ended sooner did not work: the next one starts after a pause, which doubles each time
LIVED_S = 1.0
FIRST_PAUSE_S, MOST_PAUSE_S = 0.5, 60.0


def main() -> None:
    path = sys.argv[1]
    try:
        with open(path, "rb") as file:
            spec = json.loads(file.read())
        os.unlink(path)
        if "ends_with" in spec:  # a check ends with the llmc that runs it; an agent does not
            _end_with(spec["ends_with"])
        os.chdir(spec["cwd"])
        if "sandbox" in spec:
            run_in_box(spec["argv"], spec["cwd"], spec["env"], spec["sandbox"], is_check="ends_with" in spec)
        become(spec["argv"], spec["env"])
    except (OSError, ValueError, KeyError) as error:
        print(f"llmc: cannot start the agent: {error}", file=sys.stderr)
        sys.exit(127)


def _end_with(parent: int) -> None:
    """Have this process killed when its parent ends. If the parent ended before the call, no signal comes."""
    import signal

    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(137)


def become(argv: list[str], env: dict[str, str]) -> None:
    if sys.platform == "linux" and not os.environ.get("LLMC_PORTABLE"):
        _prctl(PR_SET_CHILD_SUBREAPER, 1)  # it lasts across exec
    os.execve(argv[0], argv, env)


def run_in_box(
    argv: list[str], cwd: str, env: dict[str, str], sandbox: "dict[str, Any]", *, is_check: bool = False
) -> None:
    """Run the agent inside bubblewrap, pass on signals, and end as the agent ends. Such a signal kills a check.

    Holder, bubblewrap and agent stay in one process group: the agent must be in the terminal's foreground.
    """
    import signal

    told, tells = os.pipe()
    rules, rules_in = os.pipe()
    os.write(rules_in, bytes.fromhex(sandbox["filter"]))  # small: it fits into the pipe
    os.close(rules_in)
    # Ctrl-C at a terminal that is not in raw mode goes to the whole group. To survive, bubblewrap ignores these.
    own_keys = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
    # The agent starts with the default action for each of these, even if llmc was started with nohup.
    passed = {signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT}
    names = ",".join(number.name.removeprefix("SIG") for number in {*own_keys, *passed})
    box = [*sandbox["argv"], "--seccomp", str(rules), "--info-fd", str(tells), "--chdir", cwd]
    network = HeldNetwork(sandbox["network"]) if "network" in sandbox else None
    opening = network.opening() if network else []
    box += ["--", *opening, "/usr/bin/env", f"--default-signal={names}", *argv]
    signal.pthread_sigmask(signal.SIG_BLOCK, {*passed, signal.SIGCHLD})
    holder = os.getpid()
    child = os.fork()
    if child == 0:
        _end_with(holder)  # nothing outlives the pane's own process
        for number in own_keys:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.set_inheritable(rules, True)
        os.set_inheritable(tells, True)
        try:
            os.execve(box[0], box, env)
        except OSError as error:
            print(f"llmc: cannot run {box[0]}: {error}", file=sys.stderr)
        os._exit(127)
    os.close(tells)
    os.close(rules)
    info = _read_all(told)
    whole = _pidfd(json.loads(info)["child-pid"] if info else 0)
    agent = _agent(info)
    if agent and sandbox["pid_file"]:
        _record(agent, sandbox["pid_file"])
    if network:
        network.open()
    awaited = {*passed, signal.SIGCHLD}
    while True:
        pause_s = network.keep_up() if network else None
        got = signal.sigwaitinfo(awaited) if pause_s is None else signal.sigtimedwait(awaited, pause_s)
        if got is None:
            continue  # the pause is over
        # The agent has received the terminal's signals itself; only a hang-up goes to the pane's own process alone.
        by_terminal = got.si_code > 0 and got.si_signo in (signal.SIGINT, signal.SIGQUIT)
        if got.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                if network:
                    network.close()
                _wait_for(whole)
                _end_as(os.waitstatus_to_exitcode(status))
        elif is_check:
            _send(child, signal.SIGKILL)
        elif agent and not by_terminal:
            _send(agent, got.si_signo)


class HeldNetwork:
    """The agent's network: sockets that listen inside, where sandbox/box_entry.py opens them, and the proxy."""

    def __init__(self, spec: "dict[str, Any]") -> None:
        import _socket

        self._spec = spec
        self._ours, self._theirs = _socket.socketpair()
        self._listeners: list[tuple[int, str]] = []
        self._proxy, self._since = 0, 0.0
        self._pause_s, self._due = 0.0, 0.0

    def opening(self) -> list[str]:
        """The command that opens the sockets inside, and then becomes the command that follows it."""
        os.set_inheritable(self._theirs.fileno(), True)
        addresses = [address for address, _ in self._spec["listeners"]]
        return [*self._spec["inside"], str(self._theirs.fileno()), ",".join(addresses)]

    def open(self) -> None:
        """Receive the sockets; none come if the box did not start."""
        import _socket

        self._theirs.close()
        room = _socket.CMSG_SPACE(4 * len(self._spec["listeners"]))
        said, sent, _, _ = self._ours.recvmsg(4096, room, _socket.MSG_CMSG_CLOEXEC)
        self._ours.close()
        data = b"".join(part for *_, part in sent)
        fds = [int.from_bytes(data[at : at + 4], sys.byteorder) for at in range(0, len(data), 4)]
        targets = [self._spec["listeners"][number][1] for number in said]
        self._listeners = list(zip(fds, targets, strict=True))

    def _start(self) -> None:
        import signal

        holder = os.getpid()
        self._proxy = os.fork()
        if self._proxy:
            return
        _end_with(holder)
        os.setsid()  # keys at the terminal are not for it
        os.chdir("/")  # it uses no worktree
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        nowhere = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nowhere, fd)
        for fd, _ in self._listeners:
            os.set_inheritable(fd, True)
        argv = [*self._spec["proxy"], json.dumps({**self._spec["orders"], "listeners": self._listeners})]
        try:
            os.execve(argv[0], argv, self._spec["proxy_env"])
        except OSError:
            os._exit(127)

    def keep_up(self) -> "float | None":
        """Start the proxy, and restart it if it ended. Returns the seconds until the next start; None while it runs.

        Until then the agent can connect, but gets no answer.
        """
        import time

        now = time.monotonic()
        if self._proxy and os.waitpid(self._proxy, os.WNOHANG)[0]:
            self._proxy = 0
            self._put_off(now, has_worked=now - self._since >= LIVED_S)
        if self._proxy or not self._listeners:
            return None
        if now < self._due:
            return self._due - now
        self._since = now
        try:
            self._start()
        except OSError:  # no process can be started; the agent must not end because of that
            self._put_off(now, has_worked=False)
            return self._due - now
        return None

    def _put_off(self, now: float, *, has_worked: bool) -> None:
        """Set when the next one starts: at once if the last one had worked, else after a longer pause each time."""
        longer_s = min(max(FIRST_PAUSE_S, 2 * self._pause_s), MOST_PAUSE_S)
        self._pause_s = 0.0 if has_worked else longer_s
        self._due = now + self._pause_s

    def close(self) -> None:
        import signal

        if self._proxy:
            os.kill(self._proxy, signal.SIGKILL)
            os.waitpid(self._proxy, 0)


def _agent(info: bytes) -> int:
    """The agent's pid outside the box: the only child of bubblewrap's process 1; 0 if it did not start."""
    import time

    first = json.loads(info)["child-pid"] if info else 0
    until = time.monotonic() + START_S
    while first and time.monotonic() < until:
        try:
            children = _read(f"/proc/{first}/task/{first}/children").split()
        except OSError:
            return 0
        if children:
            return int(children[0])
        time.sleep(0.002)
    return 0


def _pidfd(first: int) -> int:
    """A descriptor to wait for bubblewrap's process 1, which ends after all others inside; -1 if it has ended."""
    try:
        return os.pidfd_open(first) if first else -1
    except OSError:
        return -1


def _wait_for(whole: int) -> None:
    """Wait for the end of the box. bubblewrap ends first; what it leaves is killed, but could write until then."""
    import select

    if whole >= 0:
        poll = select.poll()
        poll.register(whole, select.POLLIN)
        poll.poll(START_S * 1000)


def _record(agent: int, path: str) -> None:
    """Record the agent's pid outside, its start, and its pid inside, from which llmc finds its status file."""
    try:
        started = _read(f"/proc/{agent}/stat").rpartition(b")")[2].split()[19]
        inside = [
            line.split()[-1] for line in _read(f"/proc/{agent}/status").split(b"\n") if b"NSpid:" in line
        ]
    except OSError:
        return
    with open(f"{path}.new", "wb") as file:
        file.write(b"%d %s %s\n" % (agent, started, inside[0]))
    os.rename(f"{path}.new", path)


def _send(agent: int, number: int) -> None:
    try:
        os.kill(agent, number)
    except ProcessLookupError:
        pass


def _end_as(code: int) -> None:
    """End as the agent did, by the same signal if it was one: bubblewrap reports that as 128 plus its number."""
    import signal

    number = -code if code < 0 else code - 128
    stops = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)  # no program ends by these
    if 0 < number < 32 and number not in stops:
        _prctl(PR_SET_DUMPABLE, 0)  # no core file of ours
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(code & 255)


def _prctl(option: int, value: int) -> None:
    import ctypes  # sessions/sessions.py imports this file for its path only

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _read_all(fd: int) -> bytes:
    chunks = []
    while chunk := os.read(fd, 4096):
        chunks.append(chunk)
    return b"".join(chunks)


if __name__ == "__main__":
    main()
