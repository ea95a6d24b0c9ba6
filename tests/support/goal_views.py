"""A goal with work in progress, for code that shows one."""

from llmc.goals.model import (
    Anchor,
    Assignment,
    AssignmentStatus,
    BlockedReason,
    Crystallization,
    Decision,
    Evidence,
    Goal,
    GoalView,
    Node,
    NodeKind,
    NodeStatus,
    PlannerRef,
    PlanRevision,
    Priority,
    Risk,
    Tested,
)

DAY = 1_790_000_000.0
PERCENT = {"": 25, "P1": 50, "T1.1": 50, "P2": 0}


def _node(id: str, parent: str, position: int, name: str, **more: object) -> Node:
    kinds = {"P": NodeKind.PHASE, "T": NodeKind.TASK, "S": NodeKind.SUBTASK}
    fields = {"created_at": DAY, "updated_at": DAY, **more}
    return Node(
        goal_id="goal_1",
        node_id=id,
        kind=kinds[id[0]],
        parent_id=parent,
        position=position,
        name=name,
        **fields,
    )  # type: ignore[arg-type]


def _assignment(id: str, node: str, status: AssignmentStatus, **more: object) -> Assignment:
    return Assignment(
        assignment_id=id,
        goal_id="goal_1",
        work_node_id=node,
        status=status,
        created_at=DAY,
        updated_at=DAY,
        **more,  # type: ignore[arg-type]
    )


def half_done() -> GoalView:
    """Two phases: one subtask done, one in progress, one task blocked by a question, one waiting."""
    goal = Goal(
        goal_id="goal_1",
        title="Orders can be paid *by card* <now>",
        created_at=DAY,
        updated_at=DAY + 3600,
        priority=Priority.HIGH,
        owner="ada",
        problem_statement="Customers ask for it.\n# every week",
        success_criteria=("The test card works",),
        non_goals=("Refunds by phone",),
        constraints=("No new dependency",),
        assumptions=("There is a key for the provider",),
        risks=(Risk(risk="The provider is down", impact="no payments", mitigation="invoices stay"),),
        repo_context_snapshot="main at 1234abcd",
        planner=PlannerRef(
            model_ref="a-model", prompt_template_id="llmc.plan.v1", prompt_template_hash="cafe"
        ),
        plan_revision_history=(
            PlanRevision(ts=DAY, why="first plan", added=("P1", "T1.1")),
            PlanRevision(ts=DAY + 40, why="other ids", moved={"S1.1.8": "S1.1.2"}),
            PlanRevision(ts=DAY + 60, why="S1.1.9 was too large", added=("S1.1.2",), removed=("S1.1.9",)),
        ),
    )
    question = BlockedReason(
        kind="question", text="two providers fit", question="Which provider?", options=("A", "B")
    )
    nodes = [
        _node("P1", "", 0, "Payments", status=NodeStatus.IN_PROGRESS, blocks=("P2",)),
        _node("T1.1", "P1", 0, "The model", status=NodeStatus.IN_PROGRESS),
        _node("S1.1.1", "T1.1", 0, "The table", status=NodeStatus.DONE, blocks=("S1.1.2",)),
        _node("S1.1.2", "T1.1", 1, "The states", status=NodeStatus.IN_PROGRESS, depends_on=("S1.1.1",)),
        _node(
            "T1.2", "P1", 1, "The provider \x1b[31m`x`", status=NodeStatus.BLOCKED, blocked_reason=question
        ),
        _node("P2", "", 1, "The shop", depends_on=("P1",)),
        _node("T2.1", "P2", 0, "The page", depends_on=("T1.2", "S1.1.2")),
    ]
    assignments = [
        _assignment("a1", "S1.1.1", AssignmentStatus.DONE, session_key="agent:auto:worker:auto-1"),
        _assignment("a2", "S1.1.2", AssignmentStatus.STALLED, session_key="agent:auto:worker:auto-2"),
        _assignment("a3", "T1.2", AssignmentStatus.BLOCKED, blocked_reason=question),
    ]
    return GoalView(goal, {n.node_id: n for n in nodes}, {a.assignment_id: a for a in assignments})


def crystallizations() -> list[Crystallization]:
    """For a finished subtask, one in progress (twice), a node that a later plan removed, and the goal."""
    return [
        Crystallization(
            crystallization_id="c3",
            goal_id="goal_1",
            work_node_id="S1.1.2",
            level="subtask",
            created_at=DAY + 900,
            summary="The states are there, the tests are not",
            next_actions=("Write the tests",),
            open_questions=("Is a refund a state?",),
            known_blockers=("No test database",),
        ),
        Crystallization(
            crystallization_id="c1",
            goal_id="goal_1",
            work_node_id="S1.1.1",
            level="subtask",
            created_at=DAY + 600,
            summary="The table is there",
            decisions=(
                Decision(decision="One table for all providers", rationale="They differ in two columns"),
            ),
            next_actions=("Never shown: it is done",),
            open_questions=("Never shown either",),
            evidence=Evidence(
                files_touched=("db/payments.sql",),
                commands_run=("make migrate | tee `log`",),
                tests_run=(Tested(command="make test-db", result="12 passed"),),
                commits=("8243c5bc742f",),
                prs=("#12",),
                issues=("SHOP-7",),
                external_refs=("https://example.org/a_b",),
            ),
            anchors=(Anchor(session_key="agent:auto:worker:auto-1", session_id="0f0f", run_ids=("7",)),),
        ),
        Crystallization(
            crystallization_id="c2",
            goal_id="goal_1",
            work_node_id="S1.1.8",
            level="subtask",
            created_at=DAY + 700,
            summary="Begun",
            next_actions=("Older, and replaced",),
        ),
        Crystallization(
            crystallization_id="c0",
            goal_id="goal_1",
            work_node_id="S1.1.9",
            level="subtask",
            created_at=DAY + 30,
            summary="It was too large",
        ),
        Crystallization(
            crystallization_id="c4",
            goal_id="goal_1",
            level="goal",
            created_at=DAY + 1000,
            summary="Half of the payments are there",
            current_state="The shop does not know of them yet",
            next_actions=("Choose a provider",),
        ),
    ]
