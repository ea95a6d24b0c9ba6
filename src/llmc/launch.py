"""The pane's own command: reads a launch spec, deletes it, and becomes the agent.

    python -I -S launch.py <spec>

tmux cannot remove variables from an environment, shows them on its command line, and refuses long ones; so the
complete environment comes in a private file instead.
"""

import json
import os
import sys


def main() -> None:
    path = sys.argv[1]
    try:
        with open(path, "rb") as file:
            spec = json.loads(file.read())
        os.unlink(path)
        os.chdir(spec["cwd"])
        os.execve(spec["argv"][0], spec["argv"], spec["env"])
    except (OSError, ValueError, KeyError) as error:
        print(f"llmc: the agent could not be started: {error}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main()
