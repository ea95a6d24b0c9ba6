"""The command `llmc`: the hot commands first, everything else through click."""

import sys


def main() -> None:
    argv = sys.argv[1:]
    code = None
    if argv and argv[0] not in ("hook", "--help", "--version"):
        from llmc.cli import fast

        code = fast.dispatch(argv)
    if code is None:
        from llmc.cli.app import run

        code = run(argv)
    sys.stdout.flush()
    sys.exit(code)


if __name__ == "__main__":
    main()
