"""The first program inside the box of a contained program: it opens the ports of its proxy, and becomes the program.

    python -I -S inside.py <socket> <addresses> <program> ...

A box has a loopback of its own, where nobody listens. A listening socket belongs to the network that it was made in,
whichever process accepts: these are made here and handed to the holder (launch.py), for the proxy outside. So nothing
of the proxy runs inside, and no path leads to it from anywhere else.
"""

import _socket
import json
import os
import sys

BACKLOG = 128


def main() -> None:
    handed = _socket.socket(fileno=int(sys.argv[1]))
    opened = [(number, _listen(host, port)) for number, (host, port) in enumerate(json.loads(sys.argv[2]))]
    there = [(number, one) for number, one in opened if one is not None]
    fds = b"".join(one.fileno().to_bytes(4, sys.byteorder) for _, one in there)
    numbers = json.dumps([number for number, _ in there]).encode()
    handed.sendmsg([numbers], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)])
    handed.close()
    os.execv(sys.argv[3], sys.argv[3:])


def _listen(host: str, port: int) -> "_socket.socket | None":
    """None where it cannot: the box may have no IPv6."""
    made = _socket.socket(_socket.AF_INET6 if ":" in host else _socket.AF_INET, _socket.SOCK_STREAM)
    try:
        made.bind((host, port))
        made.listen(BACKLOG)
    except OSError:
        made.close()
        return None
    return made


if __name__ == "__main__":
    main()
