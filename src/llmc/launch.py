"""The command of a worker's pane: reads a launch spec, deletes it, and becomes the agent.

    python -I -S launch.py <spec>

tmux cannot remove variables, shows them on its command line, and refuses long ones, so the environment comes in a
private file.

The agent adopts the orphans among its descendants, so llmc finds all its processes by their ancestors, even those that
detach. Such orphans stay as zombies until the agent exits.
"""

import json
import os
import sys

PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    path = sys.argv[1]
    if sys.platform == "linux" and not os.environ.get("LLMC_PORTABLE"):
        import ctypes  # sessions/sessions.py imports this file for its path only

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # it lasts across exec
    try:
        with open(path, "rb") as file:
            spec = json.loads(file.read())
        os.unlink(path)
        os.chdir(spec["cwd"])
        os.execve(spec["argv"][0], spec["argv"], spec["env"])
    except (OSError, ValueError, KeyError) as error:
        print(f"llmc: cannot start the agent: {error}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main()
