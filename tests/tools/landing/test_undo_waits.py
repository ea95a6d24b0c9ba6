"""A revert whose landing takes long, while another process continues the same undo."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from llmc.landing import undo, ways
from llmc.records.state import UndoJournal
from llmc.repo.project import Project
from tests.support.repos import Repo, make_project


class OtherProcess:
    """A way to land. While it is asked for an outcome, another process hands a new revert over."""

    def __init__(self, answer: ways.Landed | ways.SentBack) -> None:
        self.answer = answer

    def poll(
        self, project: Project, offer: ways.Offer, receipt: str
    ) -> ways.Landed | ways.Waits | ways.SentBack:
        assert receipt == "first"
        journal = project.store.read().undo
        assert journal is not None
        with project.store.transaction() as tx:
            tx.journal_undo(replace(journal, receipt="second"))
        return self.answer

    def verify(self, project: Project, commit: str) -> bool:
        return False


@pytest.mark.parametrize("answer", [ways.Landed("a" * 40), ways.SentBack("no")], ids=["landed", "sent back"])
def test_an_outcome_of_an_earlier_receipt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: ways.Landed | ways.SentBack
) -> None:
    """Break: use the outcome for whatever receipt the journal has by then; the undo ends, and the revert lands later."""
    source = Repo(tmp_path / "source")
    tip = source.commit("a.txt", "a\n")
    project = make_project(str(source.path), tmp_path / "root")
    journal = UndoJournal(
        step="land", started_unix=1.0, worker="w1", commit=tip, base=tip, revert=tip, receipt="first"
    )
    with project.store.transaction() as tx:
        tx.journal_undo(journal)
    monkeypatch.setattr(ways, "way_of", lambda _: OtherProcess(answer))
    assert undo.resume(project, lambda *_: "") is None
    assert project.store.read().undo == replace(journal, receipt="second")
