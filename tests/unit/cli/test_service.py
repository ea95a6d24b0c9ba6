"""The systemd units of `llmc service`."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from llmc.base.errors import Exit
from llmc.cli import app
from llmc.cli.app import cli
from llmc.cli.web import _SERVICES
from llmc.config.schema import initial_text
from llmc.doctor.canary import Undecided


@pytest.mark.parametrize(
    ("what", "final"), [("web", None), ("auto", "1 2 3 4"), ("overseer", "2 3 4 10 11 12")]
)
def test_what_stopped_because_it_needs_the_user_is_not_restarted(
    what: str, final: str | None, tmp_path: Path
) -> None:
    """Break: only `Restart=on-failure`: a supervisor that gave up would start again with a fresh history."""
    (tmp_path / ".llmc").mkdir()
    (tmp_path / "config.toml").write_text(initial_text("/source", "main", "scripted", "list"))
    done = CliRunner().invoke(cli, ["--root", str(tmp_path), "service", what], standalone_mode=False)
    assert done.exception is None
    lines = done.stdout.splitlines()
    assert {"Restart=on-failure", "RestartSec=30"} <= {*lines}, "it is restarted after a crash"
    prevented = [line for line in lines if line.startswith("RestartPreventExitStatus=")]
    assert prevented == ([] if final is None else [f"RestartPreventExitStatus={final}"])


def test_what_passes_by_itself_and_what_is_a_bug_is_restarted() -> None:
    """Break: an exit code of `RestartPreventExitStatus` for a bug, or for a canary without a result."""
    codes = {Exit(app.report(RuntimeError("x"), [])), Exit(app.report(Undecided("later"), []))}
    assert codes == {Exit.BUG, Exit.PASSING}
    assert not any(codes & set(final) for _, _, final in _SERVICES.values())
