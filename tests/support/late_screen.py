"""The scripted agent behind a slow terminal: while a file exists, nothing new is drawn, but keys are read."""

import sys
from pathlib import Path

from llmc.agents.scripted.__main__ import main
from llmc.agents.scripted.screen import Terminal


def write(program: Path, frozen: Path) -> None:
    """A program for LLMC_AGENT; the file `frozen` freezes its screen."""
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        f"from tests.support.late_screen import run\nrun({str(frozen)!r})\n"
    )
    program.chmod(0o755)


def run(frozen: str) -> None:
    draw = Terminal.write

    def draw_unless_frozen(terminal: Terminal, text: str) -> None:
        if not Path(frozen).exists():
            draw(terminal, text)

    Terminal.write = draw_unless_frozen  # type: ignore[method-assign]
    sys.exit(main(sys.argv[1:]))
