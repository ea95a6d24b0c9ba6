"""A source whose URL has a password: git gets it, and nothing else does."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet import Fleet
from tests.support.git_http import IN_URL, PASSWORD, GitServer, served

IDENTITY = "git -c user.name=W -c user.email=w@example.com"
SECRETS = (PASSWORD, IN_URL, "s3cr")


@pytest.fixture
def server(scripted: Fleet) -> Iterator[GitServer]:
    place = scripted.dir / "served"
    place.mkdir()
    scripted.git("clone", "-q", "--bare", str(scripted.source), str(place / "repo.git"))
    scripted.git("config", "http.receivepack", "true", cwd=place / "repo.git")
    with served(place) as found:
        yield found


def files_with_a_secret(root: Path) -> list[str]:
    found = []
    for place, _, names in os.walk(root):
        for path in (Path(place, name) for name in names):
            if path.is_file() and not path.is_symlink():
                data = path.read_bytes()
                if any(secret.encode() in data for secret in SECRETS):
                    found.append(str(path.relative_to(root)))
    return found


class Shell:
    """Runs llmc, and keeps all its output."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.printed = ""

    def __call__(self, *args: str, code: int | None = 0) -> str:
        done = self._fleet.llmc("--root", str(self._fleet.root), *args, code=code)
        self.printed += done.out + done.err
        return done.out + done.err


def test_work_comes_from_it_and_lands_there(scripted: Fleet, server: GitServer) -> None:
    """Break: clone by the URL as given: it is then in .git/config and in git's helper's command line."""
    fleet, llmc = scripted, Shell(scripted)
    url = f"http://{IN_URL}@{server.address}/repo.git"
    fleet.llmc("init", "--source", url, "--target", str(fleet.root))
    llmc("add", "adam")
    llmc("up", "--detach")
    llmc("start", "--prompt", f"@sh echo x > x.txt; git add -A; {IDENTITY} commit -qm 'Add x'")
    fleet.wait("adam", "needs_review")
    llmc("review", "adam")
    llmc("accept", "adam")
    bare = server.directory / "repo.git"
    assert fleet.git("log", "-1", "--format=%s", "main", cwd=bare) == "Add x"
    other = fleet.dir / "other"
    fleet.git("clone", "-q", str(bare), str(other), cwd=fleet.dir)
    (other / "y.txt").write_text("y\n")
    fleet.git("add", "-A", cwd=other)
    fleet.git("commit", "-qm", "Moved", cwd=other)
    fleet.git("push", "-q", "origin", "main", cwd=other)
    llmc("reset", "adam")
    assert (fleet.worktree("adam") / "y.txt").exists()
    llmc("doctor", "--json", code=None)
    llmc("doctor", code=0)
    llmc("status")
    llmc("events")
    assert server.granted > 3
    assert server.seen_in_argv == []
    assert files_with_a_secret(fleet.root) == ["config.toml"]
    assert (fleet.root / "config.toml").stat().st_mode & 0o777 == 0o600
    assert not any(secret in llmc.printed for secret in SECRETS)


def test_init_does_not_show_it(scripted: Fleet, server: GitServer) -> None:
    url = f"http://{IN_URL}@{server.address}/repo.git"
    done = scripted.llmc("init", "--source", url, "--target", str(scripted.root), "--json")
    assert done.json["source"] == f"http://{server.address}/repo.git"
    assert not any(secret in done.out + done.err for secret in SECRETS)
    wrong = f"http://nobody:wrong-s3cr@{server.address}/repo.git"
    done = scripted.llmc("init", "--source", wrong, "--target", str(scripted.dir / "second"), code=None)
    assert done.code == 1
    assert "s3cr" not in done.out + done.err


@pytest.mark.soak
def test_a_source_that_fails_tells_nothing(scripted: Fleet, server: GitServer) -> None:
    """Errors go to the event log, the daemon's log, incidents and the user. Break: leave one unscrubbed."""
    fleet, llmc = scripted, Shell(scripted)
    url = f"http://{IN_URL}@{server.address}/repo.git"
    fleet.llmc("init", "--source", url, "--target", str(fleet.root))
    llmc("config", "set", "notify.command", f"cat >> {fleet.dir}/told")
    llmc("add", "adam")
    llmc("up", "--detach")
    llmc("start", "--prompt", f"@sh echo x > x.txt; git add -A; {IDENTITY} commit -qm 'Add x'")
    fleet.wait("adam", "needs_review")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        gone = f"http://{IN_URL}@127.0.0.1:{closed.getsockname()[1]}/repo.git"
        fleet.llmc("--root", str(fleet.root), "config", "set", "repo.source", gone)
        llmc("review", "adam", code=None)
        said = llmc("accept", "adam", code=None)
        assert "127.0.0.1" in said
        llmc("reset", "adam", code=None)
        llmc("doctor", code=None)
        llmc("doctor", "--json", code=None)
        llmc("status")
        llmc("events")
        llmc("logs", "--json", code=None)
    assert server.seen_in_argv == []
    assert files_with_a_secret(fleet.root) == ["config.toml"]
    told = fleet.dir / "told"
    assert not told.exists() or "s3cr" not in told.read_text()
    assert not any(secret in llmc.printed for secret in SECRETS)


def test_a_root_of_an_older_llmc_loses_it(scripted: Fleet, server: GitServer) -> None:
    """.git/config had the whole URL. Break: take the first value seen as the right one; report an attack."""
    fleet = scripted
    url = f"http://{IN_URL}@{server.address}/repo.git"
    fleet.llmc("init", "--source", url, "--target", str(fleet.root))
    fleet.git("config", "remote.origin.url", url, cwd=fleet.root)
    assert files_with_a_secret(fleet.root) == ["config.toml", ".git/config"]
    fleet.llmc("--root", str(fleet.root), "add", "adam")
    assert files_with_a_secret(fleet.root) == ["config.toml"]
    assert fleet.llmc("--root", str(fleet.root), "status", "--json").json["attention"] == []
