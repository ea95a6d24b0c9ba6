"""Answers typed on one node for a worker of another: stored in the database, and delivered by the worker's node."""

import time
from typing import Any

from msgspec import Struct

from llmc.base.clock import monotonic
from llmc.base.errors import Refused, UsageError
from llmc.fleet import statements
from llmc.fleet.database import fetched
from llmc.fleet.nodes import Membership, find
from llmc.fleet.rules import PENDING, Node, question_for, storable

#: how long a sender waits for the receipt of a node that runs: as long as `llmc answer` itself may take
RECEIPT_S = 30.0
LOOK_S = 0.2


class Answer(Struct, frozen=True):
    """An answer, and its receipt once there is one."""

    id: int
    node: str
    worker: str
    question: str
    text: str
    #: the node on which it was typed
    sender: str
    age_s: float
    outcome: str
    reason: str = ""
    #: without a receipt: its node began to type it
    prompt_id: str = ""
    elapsed_ms: int = 0


def open_question(own: Membership, name: str, worker: str) -> tuple[Node, str]:
    """The node of a worker, and the worker's question; Refused if it has none."""
    node = find(own, name)
    question = question_for(worker, node.attention)
    if not question:
        raise Refused(
            f"{name}/{worker} has no open question that can be answered from this node",
            hint="To see questions from all nodes: llmc status --fleet",
        )
    return node, question


def send(own: Membership, node: Node, worker: str, question: str, text: str) -> Answer:
    """Store an answer and wake the worker's node; wait for the receipt if that node is running."""
    if not text.strip():
        raise UsageError("the answer is empty", hint=f'Run: llmc answer {node.name}/{worker} "..."')
    values = {
        "node": node.name,
        "worker": worker,
        "question": question,
        "text": storable(text),
        "sender": own.node,
    }

    def work(rows: Any) -> int:
        found = fetched(rows.execute(statements.ADD_ANSWER, values))
        rows.execute(statements.CALL_NODE, values)
        return int(found[0]["id"])

    number = own.database.do(work)
    end = monotonic() + (RECEIPT_S if node.state in ("up", "draining") else 0.0)
    while (sent := _one(own, number)).outcome == PENDING and monotonic() < end:
        time.sleep(LOOK_S)
    return sent


def _one(own: Membership, number: int) -> Answer:
    return Answer(**own.database.rows(statements.ONE_ANSWER, {"id": number})[0])


def recent(own: Membership) -> list[Answer]:
    """Answers that wait for their node, and those that it failed to deliver in the last day; oldest first."""
    return [Answer(**row) for row in own.database.rows(statements.OPEN_ANSWERS, {"node": ""})]


def waiting(own: Membership) -> list[Answer]:
    """Answers for this node without a receipt; oldest first."""
    rows = own.database.rows(statements.OPEN_ANSWERS, {"node": own.node})
    return [Answer(**row) for row in rows]


def begin(own: Membership, number: int, prompt_id: str) -> bool:
    """Write the id under which an answer is about to be typed; false if it has a receipt by now."""
    return bool(own.database.rows(statements.BEGIN_ANSWER, {"id": number, "prompt_id": prompt_id}))


def end(own: Membership, number: int, outcome: str, reason: str, prompt_id: str, elapsed_ms: int) -> None:
    """Write the receipt of an answer; the first one counts."""
    receipt = {"outcome": outcome, "reason": reason, "prompt_id": prompt_id, "elapsed_ms": elapsed_ms}
    own.database.rows(statements.END_ANSWER, {"id": number, **receipt})
