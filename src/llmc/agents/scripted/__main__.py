"""Start the scripted agent: read the flags, then hand over to the event loop."""

import sys

from llmc.agents.scripted import command_line


def main(argv: list[str]) -> int:
    try:
        chosen = command_line.parse(argv)
        if chosen.show_version:
            print(f"{command_line.VERSION} (llmc scripted agent)")
            return 0
        from llmc.agents.scripted.program import App  # --version and usage errors need none of it

        app = App(chosen)
    except command_line.UsageError as error:
        print(error, file=sys.stderr)
        return 1
    return app.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
