"""The systemd units of `llmc service`."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from llmc.cli.app import cli
from llmc.config.schema import initial_text


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
    assert "Restart=on-failure" in lines, "it is restarted after a crash"
    prevented = [line for line in lines if line.startswith("RestartPreventExitStatus=")]
    assert prevented == ([] if final is None else [f"RestartPreventExitStatus={final}"])
