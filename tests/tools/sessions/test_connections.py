"""What the proxies of contained agents refuse becomes state: reported once per host, listed until allowed."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from llmc.base.names import WorkerName
from llmc.base.tmux import Tmux
from llmc.config.model import Config, Contained, Repo
from llmc.config.paths import Root
from llmc.records.event_log import EventLog
from llmc.records.store import Store
from llmc.repo.project import Project
from llmc.sandbox.network import Network, write_list
from llmc.sessions import connections
from tests.support.records import worker


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = Root(tmp_path)
    store = Store(root)
    store.create()
    with store.transaction() as tx:
        for name in ("adam", "eve"):
            tx.put(worker(name=WorkerName(name), contained=True))
    root.homes.mkdir(parents=True)
    for name in ("adam", "eve"):
        write_list(Network(hosts=("a.example",), endpoints=("model.example",), files=str(root.homes / name)))
    return with_hosts(
        Project(root, Config(repo=Repo(source=str(tmp_path))), store, Tmux("none")), "a.example"
    )


def with_hosts(project: Project, *hosts: str) -> Project:
    return replace(project, config=replace(project.config, sandbox=Contained(hosts=hosts)))


def refused(project: Project, name: str, tries: dict[str, int]) -> None:
    """What a proxy has counted, by host; all at port 443."""
    rows = [
        {"host": f"{host}:443", "why": "not listed", "allow": host, "tries": times}
        for host, times in tries.items()
    ]
    (project.root.homes / f"{name}.refused").write_text(json.dumps(rows))
    connections.settle(project, project.store.worker(name))


def told(project: Project) -> list[tuple[str, str]]:
    rows = EventLog(str(project.root.events)).all()
    return [(row["worker"], row["host"]) for row in rows if row["action"] == "host_refused"]


def item(project: Project) -> Any:
    return project.store.read().attention.get(connections.ITEM)


def test_each_host_is_told_once_and_its_tries_are_counted(project: Project) -> None:
    for times in (1, 5, 9):
        refused(project, "adam", {"x.example": times})
    refused(project, "adam", {"x.example": 9, "y.example": 1})
    assert told(project) == [("adam", "x.example:443"), ("adam", "y.example:443")]
    assert [one.tries for one in project.store.worker("adam").refused_hosts] == [9, 1]
    assert project.root.log("adam").read_text().count("could not connect to x.example:443: not listed") == 1


def test_one_command_allows_what_all_of_them_need(project: Project) -> None:
    """Break: one item per worker: the second command would revoke what the first one allowed."""
    refused(project, "adam", {"x.example": 1})
    refused(project, "eve", {"y.example": 1, "x.example": 1})
    assert "(adam, eve) could not connect to x.example:443, y.example:443" in item(project).text
    assert item(project).next == (
        """llmc config set sandbox.hosts '["a.example", "x.example", "y.example"]'"""
    )


def test_a_list_that_was_changed_by_hand_is_kept_by_the_command(project: Project) -> None:
    """Break: check the configuration only when something new was refused."""
    refused(project, "adam", {"x.example": 1})
    changed = with_hosts(project, "b.example")
    connections.settle(changed, changed.store.worker("adam"))
    assert item(changed).next == """llmc config set sandbox.hosts '["b.example", "x.example"]'"""
    listed = json.loads((project.root.homes / "adam.hosts").read_text())
    assert listed == {"hosts": ["b.example"], "endpoints": ["model.example"]}


def test_what_is_allowed_is_not_listed_any_more(project: Project) -> None:
    """Even while the proxy still counts earlier refusals."""
    refused(project, "adam", {"x.example": 1, "y.example": 1})
    allowed = with_hosts(project, "a.example", "*.example")
    refused(allowed, "adam", {"x.example": 2, "y.example": 1})
    assert allowed.store.worker("adam").refused_hosts == ()
    assert item(allowed) is None


def test_what_is_ignored_is_refused_and_not_told(project: Project) -> None:
    """Break: report every refusal: a host that no agent needs would be on the attention list every night."""
    sandbox = Contained(hosts=("a.example",), ignored_hosts=("*.stats.example",))
    quiet = replace(project, config=replace(project.config, sandbox=sandbox))
    refused(quiet, "adam", {"one.stats.example": 1, "x.example": 1})
    assert told(quiet) == [("adam", "x.example:443")]
    assert "stats" not in item(quiet).text + item(quiet).next
    assert json.loads((quiet.root.homes / "adam.hosts").read_text())["hosts"] == ["a.example"]
    refused(project, "adam", {"one.stats.example": 1})
    assert item(project) is not None
    refused(quiet, "adam", {"one.stats.example": 2})
    assert item(quiet) is None


def test_a_file_that_cannot_be_read_says_nothing(project: Project) -> None:
    (project.root.homes / "adam.refused").write_text("[{")
    assert connections.settle(project, project.store.worker("adam")).refused_hosts == ()
