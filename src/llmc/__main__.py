"""The command `llmc`: the hot commands first, everything else through click."""

import gc
import os
import sys

#: Python looks for reference cycles after this many new objects; the imports of a command create fewer
OBJECTS_BEFORE_GC = 50_000


def main() -> None:
    gc.set_threshold(OBJECTS_BEFORE_GC)
    _open_closed_streams()
    code = 0
    try:
        code = _run(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # such as `llmc events | head`
        code = _drop_output(0)
    except OSError as error:
        if code == 0:  # else an error was printed
            sys.stderr.write(f"llmc: cannot write output: {error.strerror}\n")
        code = _drop_output(1)
    _end(code)


def _open_closed_streams() -> None:
    """Open /dev/null for each stream that the caller closed, so that no other file gets its number."""
    for name, mode, flags in (
        ("stdin", "r", os.O_RDONLY),
        ("stdout", "w", os.O_RDONLY),  # a write fails, and the command says so
        ("stderr", "w", os.O_WRONLY),
    ):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, flags)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode))


def _end(code: int) -> None:
    """Exit without Python's cleanup, which takes 15 ms."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            pass
    os._exit(code)


def _run(argv: list[str]) -> int:
    code = None
    if argv and argv[0] in ("-h", "--help", "--version"):
        from llmc.cli import commands

        code = commands.answer(argv)
    elif argv and argv[0] == "accept":
        _import_msgspec()
        from llmc.cli import accept_work

        code = accept_work.dispatch(argv)
    elif (not argv or argv[-1] == "ui") and _is_on_a_terminal():
        _import_msgspec()
        from llmc.cli import show_screen

        code = show_screen.dispatch(argv)
    elif argv and argv[0] in ("status", "tasks") and _is_in_a_box():
        _import_msgspec()
        from llmc.cli import contained

        code = contained.dispatch(argv)
    elif argv and argv[0] != "hook":
        from llmc.cli import fast

        code = fast.dispatch(argv)
    if code is None:
        _import_msgspec()
        from llmc.cli.app import run

        code = run(argv)
    return code


def _is_in_a_box() -> bool:
    """Whether this process may be in the box of a contained agent: process 1 is bubblewrap."""
    try:
        with open("/proc/1/comm", "rb") as file:
            return file.read() == b"bwrap\n"
    except OSError:
        return False


def _is_on_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and "_LLMC_COMPLETE" not in os.environ


def _import_msgspec() -> None:
    """Import msgspec without typing_extensions, which it tries to import but does not need: that takes 10 ms."""
    absent = "typing_extensions" not in sys.modules
    if absent:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    import msgspec as msgspec

    if absent:
        del sys.modules["typing_extensions"]


def _drop_output(code: int) -> int:
    """Discard buffered output, so that it does not raise again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return code


if __name__ == "__main__":
    main()
