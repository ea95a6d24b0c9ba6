"""The pane's own command: reads a launch spec, deletes it, and becomes the agent.

    python -I -S launch.py <spec>

tmux cannot remove variables from an environment, shows them on its command line, and refuses long ones; so the
complete environment comes in a private file instead.

Whatever the agent starts stays below it: a program that is left by its parent comes to the agent, not to init. So llmc
knows an agent's programs by their ancestors, also those that detach themselves. What ends there without a parent stays as
a zombie until the agent ends.
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
        print(f"llmc: the agent could not be started: {error}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main()
