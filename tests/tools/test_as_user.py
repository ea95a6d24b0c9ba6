"""scripts/as-user: a command of root's runs as an ordinary user."""

import os
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
LOOK = """
id -u; id -un; echo "$HOME"
touch "$HOME/x" "$TMPDIR/x" && .venv/bin/python -c 'import llmc' && echo works
test -w . || echo reads
exit 7
"""


@pytest.mark.soak
@pytest.mark.skipif(os.getuid() != 0, reason="it runs the command as you")
def test_root_becomes_a_user_that_exists_for_this_command_only() -> None:
    """Break: leave the loop with `tmpfs` out where Python is in root's home, or the trap that removes its files."""
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("cannot create a mount namespace here")
    known = Path("/etc/passwd").read_text()
    done = subprocess.run(
        ["scripts/as-user", "sh", "-c", LOOK], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 7, done.stderr
    number, name, home, *rest = done.stdout.split()
    assert int(number) > 0
    assert rest == ["works", "reads"], done
    assert name not in known
    assert not Path(home).parent.exists()
    assert Path("/etc/passwd").read_text() == known
