"""Whether an agent rests for good: no turn runs, and nothing waits in its client that would begin one.

A client calls itself idle for some milliseconds between a turn and the message that was queued behind it; and an
interrupt is what sends such a message.
"""

import time
from pathlib import Path

from llmc.agents.client_files import client_state, queued_in, row_text, rows_since
from llmc.agents.protocol import ClientStatus
from llmc.base.names import carries, header_line
from llmc.base.panes import Pane
from llmc.records.worker import Delivery, Outcome, WorkerRecord

#: a client that is idle for so long has not just ended a turn, and does not begin one by itself
IDLE_S = 0.3
#: and one that is idle for so long has no queue, whatever its transcript says: a process that was killed took it along
NO_QUEUE_S = 1.0


def has_queue(record: WorkerRecord, pane: Pane) -> bool:
    """Whether messages wait in the client; in doubt they do."""
    if is_idle(record, pane, NO_QUEUE_S):
        return False
    transcript = Path(record.transcript_path)
    return queued_in(transcript) != [] or _is_on_its_way(record.delivery, transcript)


def never_left_queue(record: WorkerRecord) -> bool:
    """Whether the last message was queued in a client that has ended since, and was not taken out of there."""
    last, transcript = record.delivery, Path(record.transcript_path)
    if last is None or last.outcome is not Outcome.QUEUED:
        return False
    waits = any(carries(text, last.prompt_id) for text in queued_in(transcript) or ())
    return waits or _is_on_its_way(last, transcript)


def _is_on_its_way(last: Delivery | None, transcript: Path) -> bool:
    """A message was queued, and the transcript does not have it yet: it may wait, or be done."""
    if last is None or last.outcome is not Outcome.QUEUED:
        return False
    rows, _ = rows_since(transcript, header_line(last.prompt_id).encode(), 0)
    return not any(carries(row_text(row), last.prompt_id) for row in rows)


def is_idle(record: WorkerRecord, pane: Pane, for_s: float = IDLE_S) -> bool:
    """Whether no turn runs, and none has just ended."""
    status, since_unix = client_state(Path(record.config_dir), pane.pid)
    return status in (ClientStatus.IDLE, ClientStatus.SHELL) and time.time() - since_unix >= for_s
