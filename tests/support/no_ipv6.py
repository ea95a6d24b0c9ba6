"""A kernel without IPv6, as with `ipv6.disable=1`: `python no_ipv6.py PROGRAM ...` runs it with a system call filter."""

import ctypes
import errno
import os
import platform
import socket
import struct
import sys

#: `socket` in the system call table of each machine
_SOCKET = {"x86_64": 41, "aarch64": 198}
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_REFUSE, _ALLOW = 0x0005_0000, 0x7FFF_0000


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("rows", ctypes.c_void_p)]


def without(*argv: str) -> list[str]:
    """The command that runs a program as on such a kernel."""
    return [sys.executable, __file__, *argv]


def _forbid() -> None:
    rows = (
        (_LOAD, 0, 0, 0),  # the system call
        (_IF_EQUAL, 0, 3, _SOCKET[platform.machine()]),
        (_LOAD, 0, 0, 16),  # its first argument
        (_IF_EQUAL, 0, 1, int(socket.AF_INET6)),
        (_RETURN, 0, 0, _REFUSE | errno.EAFNOSUPPORT),
        (_RETURN, 0, 0, _ALLOW),
    )
    data = b"".join(struct.pack("HBBI", *row) for row in rows)
    kept = ctypes.create_string_buffer(data, len(data))
    program = _Program(len(rows), ctypes.addressof(kept))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        _PR_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0
    ):
        raise OSError(ctypes.get_errno(), "cannot filter system calls")


if __name__ == "__main__":
    _forbid()
    os.execv(sys.argv[1], sys.argv[1:])
