"""Notifications on real channels: a web server on 127.0.0.1, real commands; sent once, and never lost."""

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as with_

from llmc.attention.rules import ABORTED
from llmc.base.rotation import Limit, rotate
from llmc.base.tmux import Tmux
from llmc.config.load import load_config
from llmc.config.model import Config, Notify, Repo
from llmc.config.paths import Root
from llmc.daemon.chores import Notices
from llmc.notifications import notifiers
from llmc.notifications import notify as service
from llmc.notifications.notifiers import Result
from llmc.notifications.notify import Incidents, flush, notify, over, retry
from llmc.notifications.rules import Notice
from llmc.records.store import Store
from llmc.records.transitions import step
from llmc.records.worker import Status
from llmc.repo.project import Project, bare_project
from tests.support.records import worker
from tests.support.texts import HOSTILE, acts_on_a_terminal
from tests.support.webhook import SECRET, Webhook

KIND = "fleet_parked"


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with Webhook() as server:
        yield server


@pytest.fixture
def project(tmp_path: Path, hook: Webhook) -> Project:
    root = Root(tmp_path)
    Store(root).create()
    return Project(root, configured(tmp_path, webhook=hook.url), Store(root), Tmux("none"))


def configured(source: Path, **fields: Any) -> Config:
    return Config(repo=Repo(source=str(source)), notify=Notify(**fields))


def using(project: Project, **fields: Any) -> Project:
    return with_(project, config=replace(project.config, notify=Notify(**fields)))


def tell(project: Project, key: str = "limit", kind: str = KIND, **facts: Any) -> None:
    notify(project, kind, "The fleet waits", "until ten", key=key, **facts)


def events(project: Project, action: str) -> list[dict[str, Any]]:
    try:
        lines = project.root.events.read_text().splitlines()
    except FileNotFoundError:
        return []
    return [row for row in map(json.loads, lines) if row["action"] == action]


def everything_written(project: Project) -> str:
    """All files of the root except config.toml, where the address belongs."""
    files = [path for path in project.root.path.rglob("*") if path.is_file() and path.name != "config.toml"]
    return "\n".join(path.read_text(errors="replace") for path in files)


@pytest.mark.req("7-001", "7-002", "7-005")
def test_an_incident_is_told_once_until_it_has_ended(project: Project, hook: Webhook) -> None:
    """Also by another process. Break: do not look for an open incident in `begin`; let `end` do nothing."""
    tell(project, cause="limit", task_id="3")
    [body] = hook.got
    assert (body["kind"], body["title"], body["body"], body["key"]) == (
        KIND,
        "The fleet waits",
        "until ten",
        "limit",
    )
    assert (body["cause"], body["task_id"], body["root"]) == ("limit", "3", str(project.root.path))
    tell(project)
    code = (
        "from llmc.config.paths import Root; from llmc.repo.project import *; from llmc.notifications.notify import *;"
        "from pathlib import Path; import sys;"
        "notify(bare_project(Root(Path(sys.argv[1]))), 'fleet_parked', 'again', '', key='limit')"
    )
    project.root.config.write_text(f'[notify]\nwebhook = "{hook.url}"\n')
    subprocess.run([sys.executable, "-c", code, str(project.root.path)], check=True, timeout=60)
    assert len(hook.got) == 1
    tell(project, key="api")
    assert len(hook.got) == 2
    over(project, KIND, "limit")
    tell(project, key="api")
    tell(project, key="limit")
    assert [body["key"] for body in hook.got] == ["limit", "api", "limit"]
    over(project, KIND)
    tell(project, key="api")
    assert len(hook.got) == 4
    assert [row["channels"] for row in events(project, "notified")] == [["webhook"]] * 4


@pytest.mark.req("7-003")
def test_what_was_told_once_is_forgotten_and_what_goes_on_is_not(project: Project) -> None:
    """Break: prune only incidents that have ended: a digest never ends."""
    incidents = Incidents(project.root)
    incidents.begin(Notice("fleet_parked", "limit", "Parked"), ())
    incidents.begin(Notice("digest", "due", "A night"), ("desktop",))
    for number in range(service.MOST + 3):
        incidents.begin(Notice("digest", str(number), "A night"), ())
    kept = [one.key for one in incidents.read().incidents]
    assert kept == ["limit", "due", *map(str, range(3, service.MOST + 3))]


def test_only_the_kinds_that_are_on_are_told(project: Project, hook: Webhook) -> None:
    """A kind that llmc does not know is sent. Break: do not check `on`."""
    few = using(project, webhook=hook.url, on=("digest",))
    tell(few)
    tell(few, kind="digest")
    tell(few, kind="something_new")
    assert hook.kinds() == ["digest", "something_new"]


@pytest.mark.req("7-004")
def test_a_command_gets_json_and_nothing_of_it_reaches_a_shell(project: Project, tmp_path: Path) -> None:
    """Break: put the title into the command line."""
    out = tmp_path / "out.json"
    evil = "$(touch pwned); `touch pwned` ' \" \n ü"
    notify(using(project, command=f"cat > {out}"), KIND, evil, evil, key=evil)
    body = json.loads(out.read_text())
    assert (body["title"], body["body"], body["key"]) == (evil.replace("\n", " "), evil, evil)
    assert not list(tmp_path.rglob("pwned"))
    assert out.read_text().count("\n") == 1, "a line, so that appended ones are JSON lines"
    assert out.read_text().endswith("}\n")


def test_a_command_that_prints_what_it_gets_prints_nothing_hostile(project: Project, tmp_path: Path) -> None:
    """Break: pass title and body as they are; json.dumps(ensure_ascii=False) with half an emoji."""
    out = tmp_path / "out.json"
    notify(using(project, command=f"cat > {out}"), KIND, HOSTILE, f"{HOSTILE}\n{HOSTILE}", key=HOSTILE)
    body = json.loads(out.read_text())
    assert not acts_on_a_terminal(out.read_text())
    assert not acts_on_a_terminal(body["title"] + body["body"] + body["text"])
    assert body["body"].count("\n") == 1


@pytest.mark.req("7-006", "7-007")
def test_a_channel_that_fails_is_an_event_without_its_address(
    project: Project, hook: Webhook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are sent. Break: log the exception's own message; or stop at the first failure."""
    out = tmp_path / "told"
    hook.status = 500
    command = f"cat > /dev/null; touch {out}"
    wrong = f"http://127.0.0.1:1/{SECRET}"
    some = using(project, webhook=hook.url, command=command, urls=(f"json://{SECRET}@127.0.0.1:1/{SECRET}",))
    tell(some)
    assert out.exists()
    failed = {row["channel"]: row["reason"] for row in events(project, "notify_failed")}
    assert failed["webhook"] == "HTTP status 500"
    assert set(failed) == {"webhook", "url-1"}
    tell(using(project, webhook=wrong), key="2")
    tell(using(project, webhook=f"http://[{SECRET}"), key="3")
    tell(using(project, command=f"echo cannot reach http://x/{SECRET} >&2; exit 3"), key="4")
    tell(using(project, command=f"/no/such/{'x' * 20}"), key="5")
    reasons = [row["reason"] for row in events(project, "notify_failed")][2:]
    assert reasons[:3] == ["Connection refused", "invalid URL", "exit code 3: cannot reach ..."]
    assert SECRET not in everything_written(project)
    problems = service.problems(some)
    assert "notify: the last notification to webhook failed: invalid URL" in problems
    assert SECRET not in str(problems)


@pytest.mark.req("7-006")
def test_a_failed_channel_is_tried_again_but_not_for_ever(
    project: Project, hook: Webhook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others do not get it again. Break: retry every channel; or retry without a limit."""
    monkeypatch.setattr(service, "PAUSE_S", 0.0)
    count = tmp_path / "count"
    both = using(project, webhook=hook.url, command=f"echo x >> {count}")
    hook.status = 500
    tell(both)
    hook.status = 200
    retry(both)
    flush()
    assert len(hook.got) == 1
    assert count.read_text() == "x\n"
    hook.status = 500
    tell(both, key="2")
    for _ in range(5):
        retry(both)
        flush()
    tries = [row["attempt"] for row in events(project, "notify_failed") if row["key"] == "2"]
    assert tries == [1, 2, 3]
    monkeypatch.setattr(service, "PAUSE_S", 60.0)
    tell(both, key="3")
    retry(both)
    flush()
    assert len([row for row in events(project, "notify_failed") if row["key"] == "3"]) == 1


@pytest.mark.req("7-008")
def test_nobody_waits_longer_than_the_limit(
    project: Project, hook: Webhook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And what hangs is ended. Break: wait in `post`; or no time limit for a command."""
    monkeypatch.setattr(service, "TIMEOUT_S", 0.5)
    hook.hang.clear()
    pid = tmp_path / "pid"
    slow = using(project, webhook=hook.url, command=f"echo $$ > {pid}; exec sleep 60")
    began = time.monotonic()
    service.post(slow, Notice(KIND, "limit", "t"))
    assert time.monotonic() - began < 0.4
    assert flush(5)
    assert time.monotonic() - began < 4
    failed = {row["channel"]: row["reason"] for row in events(project, "notify_failed")}
    assert failed == {"webhook": "no response within 0.5 s", "command": "timed out after 0.5 s"}
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@pytest.mark.req("7-008")
def test_a_channel_that_does_not_keep_its_time_is_left_behind() -> None:
    """Like a server that answers one byte at a time. Break: join without a limit in `tell`."""
    never, heard = threading.Event(), list[object]()
    channels = {"slow": lambda message, timeout_s: never.wait(20), "quick": lambda m, t: heard.append(m)}
    began = time.monotonic()
    outcomes = notifiers.tell(channels, {"title": "t"}, 0.2)
    assert time.monotonic() - began < 10
    never.set()
    late = notifiers.Outcome("slow", Result.FAILED, "no response within 0.2 s")
    assert outcomes == [late, notifiers.Outcome("quick", Result.TOLD)]
    assert heard == [{"title": "t"}]


@pytest.mark.req("7-009")
@pytest.mark.parametrize(
    ("fault", "before", "after"),
    [
        ("notify.record:before", 0, 1),
        ("notify.record:after", 0, 1),
        ("notify.send:before", 0, 1),
        ("notify.send:after", 1, 2),
        ("notify.told:after", 1, 1),
    ],
)
def test_a_kill_at_any_moment_loses_nothing_and_tells_twice_at_most(
    project: Project, hook: Webhook, fault: str, before: int, after: int
) -> None:
    """The next process sends it. Break: mark it as sent before it is; or no `take_due`."""
    Notices(project)
    project.root.config.write_text(f'[notify]\nwebhook = "{hook.url}"\n')
    with project.store.transaction() as tx:
        tx.raise_item("bug:adam", kind="bug", severity="blocked", who="adam", text="it broke")
    code = """
import sys
from pathlib import Path
from llmc.config.paths import Root
from llmc.daemon.chores import Notices
from llmc.notifications.notify import flush
from llmc.repo.project import bare_project
project = bare_project(Root(Path(sys.argv[1])))
Notices(project).tell(project)
flush()
"""
    env = {**os.environ, "LLMC_FAULT": f"{fault}:kill"}
    argv = [sys.executable, "-c", code, str(project.root.path)]
    assert subprocess.run(argv, env=env, timeout=60).returncode == -signal.SIGKILL
    assert len(hook.got) == before
    for _ in range(2):
        Notices(project).tell(project)
        flush()
    assert len(hook.got) == after


@pytest.mark.req("7-002", "7-009")
def test_events_that_nobody_saw_are_told_by_the_next_daemon(project: Project, hook: Webhook) -> None:
    """Across rotation, but not events from before llmc first watched.

    Break: start at the end of the log each time.
    """

    def fail(cause: str) -> None:
        with project.store.transaction() as tx:
            tx.emit("auto_failed", cause=cause, reason="why")

    def resume() -> None:
        with project.store.transaction() as tx:
            tx.emit("auto_started")
            tx.emit("auto_stopped")

    fail("limit")
    Notices(project).tell(project)
    flush()
    assert hook.got == []
    rotate(project.root.events, Limit(1))
    fail("api")
    rotate(project.root.events, Limit(1))
    with project.store.transaction() as tx:
        tx.emit("held", worker="adam")
    for _ in range(2):
        Notices(project).tell(project)
        flush()
    assert [body["key"] for body in hook.got] == ["api"]
    watching = Notices(project)
    resume()
    fail("api")
    watching.tell(project)
    flush()
    resume()
    fail("limit")
    resume()
    watching.tell(project)
    flush()
    assert [body["key"] for body in hook.got] == ["api", "api"]
    assert not any(one.is_open for one in Incidents(project.root).read().incidents)


def test_the_next_rebase_that_a_worker_aborts_is_told_also_when_nobody_looked_between(
    project: Project, hook: Webhook
) -> None:
    """Break: identify an item by its key alone: the first incident stays open, and swallows the second."""
    aborted = step(Status.NEEDS_REVIEW, ABORTED, commit_sha="c" * 40)
    with project.store.transaction() as tx:
        tx.put(worker(Status.REBASING))
        tx.move("w1", aborted)
    watching = Notices(project)
    watching.tell(project)
    watching.tell(project)
    flush()
    with project.store.transaction() as tx:  # the user requests the rebase again; it is aborted
        tx.move("w1", step(Status.REBASING, "conflicts"))
        tx.move("w1", aborted)
    for _ in range(2):
        watching.tell(project)
        flush()
    assert [body["key"] for body in hook.got if body.get("worker")] == ["conflict:w1"] * 2


@pytest.mark.req("7-002", "7-012")
def test_what_is_blocked_is_told_once_while_it_stays_and_again_when_it_comes_back(
    project: Project, hook: Webhook
) -> None:
    """Break: send an item at each check; or never end the incident of one that is gone."""
    watching = Notices(project)

    def look(severity: str | None) -> None:
        with project.store.transaction() as tx:
            if severity is None:
                tx.clear_item("bug:adam")
            else:
                tx.raise_item(
                    "bug:adam",
                    kind="bug",
                    severity=severity,
                    who="adam",
                    text="it broke",
                    next="llmc logs daemon",
                )
        watching.tell(project)
        flush()

    look("waiting")
    assert hook.got == [], "what can wait is not sent"
    look("blocked")
    look("blocked")
    Notices(project).tell(project)
    flush()
    assert [(body["kind"], body["key"], body["next"]) for body in hook.got] == [
        ("blocked", "bug:adam", "llmc logs daemon")
    ]
    look(None)
    look("blocked")
    assert len(hook.got) == 2


@pytest.mark.req("7-010")
def test_a_root_that_is_broken_still_tells(project: Project, hook: Webhook) -> None:
    """Broken configuration, state and incidents; an unwritable directory.

    Break: let an error out of `post`.
    """
    root = project.root
    root.config.write_text(f'[notify]\nwebhook = "{hook.url}"\n[repo]\nsource = 5\n')
    root.state.write_text("{")
    root.incidents.write_text("{")
    tell(bare_project(root))
    assert len(hook.got) == 1
    root.incidents.unlink()
    root.incidents.mkdir()
    for _ in range(2):
        tell(bare_project(root), key="2")
    assert [body["key"] for body in hook.got] == ["limit", "2"]
    over(bare_project(root), KIND, "2")
    retry(bare_project(root))


@pytest.mark.req("7-004")
def test_what_is_not_here_is_skipped_or_says_how_to_get_it(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Break: let ImportError out of the channel; call notify-send without checking for it."""
    monkeypatch.setitem(sys.modules, "apprise", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    outcomes = {
        one.channel: one for one in service.try_channels(using(project, desktop=True, urls=("ntfy://x",)))
    }
    assert outcomes["desktop"] == notifiers.Outcome("desktop", Result.SKIPPED, "notify-send is not installed")
    assert outcomes["url-1"].result is Result.FAILED
    assert "pip install 'llmc[notify]'" in outcomes["url-1"].reason
    assert "pip install 'llmc[notify]'" in service.problems(using(project, urls=("ntfy://x",)))[0]
    script = tmp_path / "notify-send"
    script.write_text(f'#!/bin/sh\nprintf "%s|" "$@" > {tmp_path}/shown\n')
    script.chmod(0o755)
    notify(using(project, desktop=True), KIND, "-title", "body", key="k")
    assert (tmp_path / "shown").read_text() == "--app-name=llmc|--|-title|body|"


@pytest.mark.req("7-004")
def test_the_bell_rings_at_the_terminal_llmc_runs_in() -> None:
    """Break: write it to a file as well; or nowhere."""
    code = "from llmc.notifications import notifiers as n; print(n.tell({'bell': n.bell}, {}, 5)[0])"
    argv = [sys.executable, "-c", code]
    master, slave = pty.openpty()
    try:
        subprocess.run(argv, stdout=slave, check=True, timeout=60)
        assert os.read(master, 1000).startswith(b"\a")
    finally:
        os.close(master)
        os.close(slave)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, start_new_session=True)
    assert "\a" not in done.stdout
    assert "no terminal" in done.stdout


@pytest.mark.req("7-004")
@pytest.mark.filterwarnings("default")  # those of the library are not ours
def test_apprise_takes_any_of_its_urls(project: Project, hook: Webhook) -> None:
    """Break: forget `notify` in the channel."""
    tell(using(project, urls=(f"json://{hook.address}", "nonsense")))
    assert [(body["title"], body["message"]) for body in hook.got] == [("The fleet waits", "until ten")]
    assert [row["reason"] for row in events(project, "notify_failed")] == [
        "Apprise does not support this URL"
    ]
    assert SECRET not in everything_written(project)


@pytest.mark.req("7-007")
@pytest.mark.parametrize(
    "line",
    [f'webhook = "{SECRET}"', f'webhook = ["{SECRET}"]', f'urls = {{ a = "{SECRET}" }}', f'url = "{SECRET}"'],
)
def test_a_wrong_address_is_not_repeated(tmp_path: Path, line: str) -> None:
    """One string stands for an array of one. Break: show the value in check_webhook."""
    path = tmp_path / "config.toml"
    path.write_text(f'[repo]\nsource = "/x"\n[notify]\n{line}\n')
    with pytest.raises(Exception) as failure:
        load_config(path)
    assert SECRET not in f"{failure.value} {getattr(failure.value, 'hint', '')}"
    path.write_text(f'[repo]\nsource = "/x"\n[notify]\nurls = "ntfy://{SECRET}"\n')
    assert load_config(path).notify.urls == (f"ntfy://{SECRET}",)
