"""The private PostgreSQL of the demo and of the tests."""

import sys
import tempfile
from pathlib import Path

import psycopg
import pytest

from llmc.base.proc import ToolMissing
from llmc.base.processes import is_alive
from llmc.cli.app import run
from llmc.rehearsal import postgres as private
from tests.support.postgres import Postgres
from tests.support.waiting import wait_until


def test_without_the_server_the_package_to_install_is_named() -> None:
    with pytest.raises(ToolMissing) as missing:
        private.program("a-program-that-no-server-has")
    assert "PostgreSQL server is not installed" in missing.value.message
    assert "apt-get install postgresql" in missing.value.hint


def test_a_closed_server_leaves_nothing() -> None:
    """Break: remove the directory and leave the server running."""
    server = Postgres()
    pid = (server.data / "postmaster.pid").read_text().split()[0]
    url = server.new()
    with psycopg.connect(url) as db:
        assert db.execute("select 1").fetchone() == (1,)
    server.close()
    assert not server.dir.exists()
    wait_until(lambda: not is_alive(int(pid)))


@pytest.mark.parametrize("lacks", ["driver", "server"])
def test_the_demo_without_what_it_needs_names_it_and_leaves_nothing(
    lacks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Break: look for the programs after creating a directory."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if lacks == "driver":
        monkeypatch.setitem(sys.modules, "psycopg", None)
    else:
        found = private.program
        monkeypatch.setattr(private, "program", lambda name: found(f"no-{name}"))
    assert run(["demo", "--fleet"]) == 1
    said = capsys.readouterr().err
    assert {"driver": "pip install 'llmc[fleet]'", "server": "apt-get install postgresql"}[lacks] in said
    assert list(tmp_path.iterdir()) == []
