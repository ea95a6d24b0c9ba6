"""The subscription: changes are reported, with and without a daemon; screens only while they are watched."""

from collections.abc import Iterator

import pytest

from llmc.api import subscription
from llmc.api.subscription import Change, FleetSeen, Happened, ScreenSeen, Subscription, Trouble
from llmc.api.views import Fleet as View
from llmc.repo.project import open_project
from tests.support.fleet import Fleet
from tests.support.waiting import wait_until

COMMIT = "git -c user.name=W -c user.email=w@example.com commit -q"
WORK = f"Do it\n@say On it\n@sh echo 1 > f.txt; git add -A; {COMMIT} -m 'One line'"


class Listener:
    """Everything that was reported, in order."""

    def __init__(self, fleet: Fleet) -> None:
        self.told: list[Change] = []
        self.subscription = Subscription(open_project(str(fleet.root)), self.told.append)
        self.subscription.start()

    @property
    def fleets(self) -> list[View]:
        return [change.fleet for change in self.told if isinstance(change, FleetSeen)]

    @property
    def actions(self) -> list[str]:
        return [one.action for change in self.told if isinstance(change, Happened) for one in change.events]

    def screens(self, worker: str) -> list[str]:
        seen = [change.screen for change in self.told if isinstance(change, ScreenSeen)]
        return ["\n".join(screen.lines) or screen.problem for screen in seen if screen.worker == worker]


@pytest.fixture
def listener(fleet: Fleet) -> Iterator[Listener]:
    fleet.set_up("adam", "baker")
    fleet.up("--no-patrol")
    made = Listener(fleet)
    wait_until(lambda: made.fleets)
    yield made
    made.subscription.stop()


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
def test_a_task_from_its_start_to_its_landing(fleet: Fleet, listener: Listener) -> None:
    """Break: watch state.json by its inode, which changes with each transaction."""
    assert listener.fleets[0].idle == ("adam", "baker")
    fleet.llmc("start", "--worker", "adam", "--prompt", WORK)
    wait_until(lambda: listener.fleets[-1].needs == ("adam",))
    row = listener.fleets[-1].rows["adam"]
    assert (row.look.word, row.task, row.subject) == ("review", "Do it", "One line")
    wait_until(
        lambda: (
            (row := listener.fleets[-1].rows["adam"]).added is not None and (row.added, row.deleted) == (1, 0)
        )
    )
    fleet.llmc("accept", "adam")
    wait_until(lambda: [one.subject for one in listener.fleets[-1].landed] == ["One line"])
    last = listener.fleets[-1]
    assert (last.counts.landed, last.counts.need, last.needs) == (1, 0, ())
    wait_until(lambda: "accepted" in listener.actions)
    assert len(listener.actions) == len([row for row in fleet.events() if row["ts"]])  # each once
    fleet.llmc("undo", "--yes")
    wait_until(lambda: listener.fleets[-1].landed and listener.fleets[-1].landed[0].undone)


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
def test_it_goes_on_without_a_daemon(fleet: Fleet, listener: Listener) -> None:
    """Break: use the daemon's socket as the source of changes."""
    fleet.kill_daemon()
    wait_until(lambda: not listener.fleets[-1].health.daemon, timeout_s=subscription.REST_S + 5)
    fleet.llmc("hold", "baker")
    wait_until(lambda: listener.fleets[-1].rows["baker"].held)
    fleet.llmc("start", "--worker", "adam", "--prompt", WORK)
    wait_until(
        lambda: listener.fleets[-1].rows["adam"].status == "needs_review", timeout_s=subscription.REST_S + 10
    )


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
def test_only_the_screen_that_is_looked_at(fleet: Fleet, listener: Listener) -> None:
    """Break: capture every worker."""
    assert not listener.screens("adam")
    listener.subscription.watch_screens("adam")
    wait_until(lambda: listener.screens("adam"))
    fleet.llmc("start", "--worker", "adam", "--prompt", WORK)
    wait_until(lambda: "On it" in listener.screens("adam")[-1])
    assert not listener.screens("baker")
    listener.subscription.watch_screens("baker")
    wait_until(lambda: listener.screens("baker"))
    fleet.llmc("down")
    wait_until(lambda: "the agent is not running" in listener.screens("baker")[-1])


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
@pytest.mark.soak
def test_a_state_that_cannot_be_read_is_told_and_passes(fleet: Fleet, listener: Listener) -> None:
    state, away = fleet.root / "state.json", fleet.root / "away.json"
    fleet.llmc("down")
    state.rename(away)
    (fleet.root / "state.json").write_text("{")
    wait_until(lambda: any(isinstance(change, Trouble) and change.text for change in listener.told))
    away.rename(state)
    wait_until(lambda: isinstance(listener.told[-1], FleetSeen))
    troubles = [change.text for change in listener.told if isinstance(change, Trouble)]
    assert troubles[-1] == ""


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
@pytest.mark.soak
def test_a_log_that_cannot_be_read_is_told_and_passes(fleet: Fleet, listener: Listener) -> None:
    """Break: let the thread end, so that the screen silently stops updating."""
    log = fleet.root / "logs/events.jsonl"
    fleet.llmc("down")
    log.rename(log.with_name("away"))
    log.mkdir()
    wait_until(lambda: any(isinstance(change, Trouble) and change.text for change in listener.told))
    log.rmdir()
    log.with_name("away").rename(log)
    wait_until(lambda: isinstance(listener.told[-1], FleetSeen))
