"""The first program in a box: opens the ports of the proxy, then becomes the contained program.

    python -I -S box_entry.py <socket> <address>,<address>... <program> ...

A box has its own loopback, where nothing listens. A listening socket belongs to the network that it was created in,
even if a process outside accepts its connections. So the sockets are created here and passed to the holder (launch.py),
for the proxy outside. No part of the proxy runs inside, and no other program can reach it.

Like the hook sender, it imports only built-in modules and `_socket`: an agent waits for it.
"""

import _socket
import posix
import sys

BACKLOG = 128


def main() -> None:
    handed = _socket.socket(fileno=int(sys.argv[1]))
    opened = [listen(address) for address in sys.argv[2].split(",")]
    there = [number for number, fd in enumerate(opened) if fd >= 0]
    fds = b"".join(opened[number].to_bytes(4, sys.byteorder) for number in there)
    handed.sendmsg([bytes(there)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)])
    handed.close()
    posix.execv(sys.argv[3], sys.argv[3:])


def listen(address: str) -> int:
    """The file descriptor of a socket that listens there; -1 if it cannot: box or kernel may have no IPv6."""
    host, _, port = address.rpartition(":")
    try:
        made = _socket.socket(_socket.AF_INET6 if ":" in host else _socket.AF_INET, _socket.SOCK_STREAM)
    except OSError:
        return -1
    try:
        made.bind((host.strip("[]"), int(port)))
        made.listen(BACKLOG)
    except OSError:
        made.close()
        return -1
    return made.detach()


if __name__ == "__main__":
    main()
