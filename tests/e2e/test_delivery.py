"""Submit with receipts, on both agents: the text arrives exactly, and its receipt is true."""

from collections import Counter

import pytest

from llmc.agents.kinds import reader_of
from llmc.agents.protocol import ClientStatus
from llmc.base.names import header_id
from llmc.base.panes import Pane
from llmc.records.worker import Outcome
from llmc.repo.project import Project, open_project
from llmc.sessions.rules.prompt_text import normalise, typed
from llmc.sessions.submit import Receipt, submit
from tests.support.fleet import SCRIPTED_IN_SOAK, Fleet
from tests.support.texts import awkward
from tests.support.waiting import wait_until


def in_process(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Project:
    for key, value in fleet.env.items():
        monkeypatch.setenv(key, value)
    return open_project(str(fleet.root))


def process_of(project: Project, worker: str) -> int:
    """The agent's process: one for the whole test, because another one's status file would not be found."""
    pane = project.pane(project.store.worker(worker))
    assert isinstance(pane, Pane)
    return pane.pid


def send(project: Project, text: str) -> Receipt:
    with project.worker_lock("adam"):
        return submit(project, "adam", "message", text)


@pytest.mark.timeout(600)  # 200 real turns take two minutes on an idle machine
@pytest.mark.req("1-055", "1-058")
@pytest.mark.parametrize("fleet", SCRIPTED_IN_SOAK, indirect=True)
@pytest.mark.soak
@pytest.mark.parametrize("count", [14, 200])  # 14: one of each size
def test_awkward_prompts_arrive_exactly_and_once(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Break: paste without -p (bracketed), or leave out the final newline of `typed`."""
    fleet.set_up("adam")
    fleet.up()
    project = in_process(fleet, monkeypatch)
    agent = process_of(project, "adam")

    def is_idle() -> bool:
        return reader_of(fleet.agent).state(fleet.client_config, agent).status is ClientStatus.IDLE

    expected = {}
    outcomes: Counter[Outcome] = Counter()
    for index, text in enumerate(awkward(count, seed=7)):
        if index % 4:  # every fourth is sent while the agent may still be busy with the previous one
            wait_until(is_idle)
        receipt = send(project, text)
        outcomes[receipt.outcome] += 1
        assert receipt.outcome.arrived, f"{index}: {receipt} {text[:80]!r}\n{fleet.story()}"
        expected[receipt.prompt_id] = typed(receipt.prompt_id, normalise(text)).rstrip()
    wait_until(is_idle, 60)
    wait_until(lambda: {header_id(text) for text in fleet.prompts_in_transcripts()} >= set(expected))
    found: dict[str, list[str]] = {}
    for prompt in fleet.prompts_in_transcripts():
        prompt_id = header_id(prompt)
        if prompt_id:
            found.setdefault(prompt_id, []).append(prompt.rstrip())
    for prompt_id, text in expected.items():
        assert set(found.get(prompt_id, [])) == {text}
    turns = Counter(header_id(text) for text in fleet.user_turns() if header_id(text))
    assert not [prompt_id for prompt_id, count in turns.items() if count > 1]
    assert sum(outcomes.values()) == count
