"""A client broken in ways a test chooses: a wrapped scripted agent under the real client's name."""

import os
import sys

from tests.support.fleet import Fleet

#: `hook:NAME` drops a hook, `slow:NAME` makes it take a while; `enter`, `clear`, `exit` and `status` do not work;
#: to a `silent` one the API does not answer
_WRAPPER = """#!{python} -P
import json, os, sys
from pathlib import Path
from tempfile import NamedTemporaryFile

folder = Path({folder!r})
broken = (folder / "broken").read_text().split()
if "--version" in sys.argv:
    print((folder / "version").read_text())
    sys.exit()
if "enter" in broken:
    os.environ["LLMC_SCRIPTED_SWALLOW_ENTER"] = "1000"
if "status" in broken:
    os.environ["LLMC_SCRIPTED_NO_STATUS"] = "1"
place = sys.argv.index("--settings") + 1
settings = json.loads(Path(sys.argv[place]).read_text())
for word in broken:
    kind, _, name = word.partition(":")
    if kind == "hook":
        del settings["hooks"][name]
    elif kind == "slow":
        hook = settings["hooks"][name][0]["hooks"][0]
        settings["hooks"][name] = [{{"hooks": [{{**hook, "command": "sleep 2; " + hook["command"]}}]}}]
with NamedTemporaryFile("w", dir={marks!r}, suffix=".settings.json", delete=False) as changed:
    json.dump(settings, changed)
sys.argv[place] = changed.name

from llmc.agents.scripted import keyboard, program, turn
from llmc.agents.scripted.__main__ import main

if "clear" in broken:
    del keyboard.ACTIONS["clear"]
if "silent" in broken:
    turn.Turn._work = lambda self: self._wait(None)
if "exit" in broken:
    good = program.App._exit
    program.App._exit = lambda self, reason, code: good(self, reason, 3 if reason == "prompt_input_exit" else code)
sys.exit(main(sys.argv[1:]))
"""


class OddClient:
    """The client of a fleet; `is_broken` and `has_version` change it."""

    def __init__(self, fleet: Fleet, *broken: str) -> None:
        self.folder = fleet.dir / "client"
        self.folder.mkdir()
        self.has_version("3.0.0 (odd)")
        self.is_broken(*broken)
        program = self.folder / "claude"
        places = {"folder": str(self.folder), "marks": str(fleet.marks)}
        program.write_text(_WRAPPER.format(python=sys.executable, **places))
        os.chmod(program, 0o755)
        fleet.config_dir.mkdir()
        fleet.env |= {
            "LLMC_AGENT": str(program),
            "CLAUDE_CONFIG_DIR": str(fleet.config_dir),
            "CLAUDE_CODE_SANDBOXED": "1",
        }

    def is_broken(self, *ways: str) -> None:
        (self.folder / "broken").write_text(" ".join(ways))

    def has_version(self, text: str) -> None:
        (self.folder / "version").write_text(text)
