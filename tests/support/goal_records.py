"""Goals, plans and assignments for tests, with every field set where that matters."""

from typing import Any

from llmc.goals.model import (
    Advice,
    Anchor,
    Asking,
    Assignment,
    AssignmentStatus,
    BlockedReason,
    Change,
    CriteriaCheck,
    Crystallization,
    Decision,
    DeliveryContext,
    Dispatch,
    Event,
    Evidence,
    Goal,
    GoalStatus,
    GoalView,
    Mode,
    Node,
    NodeKind,
    NodeStatus,
    Origin,
    PlannerRef,
    PlanRevision,
    Priority,
    Recovery,
    Result,
    Risk,
    Tested,
)

GOAL = "goal_1"


def goal(**fields: Any) -> Goal:
    return Goal(
        **{"goal_id": GOAL, "title": "Import CSV files", "created_at": 1.0, "updated_at": 1.0, **fields}
    )


def node(node_id: str, status: NodeStatus = NodeStatus.TODO, **fields: Any) -> Node:
    """P1 is a phase, T1.1 a task of it, S1.1.1 a subtask of that."""
    kind = {"P": NodeKind.PHASE, "T": NodeKind.TASK, "S": NodeKind.SUBTASK}[node_id[0]]
    numbers = node_id[1:].split(".")
    above = {"P": "", "T": f"P{numbers[0]}", "S": f"T{'.'.join(numbers[:2])}"}[node_id[0]]
    base = {
        "goal_id": GOAL,
        "node_id": node_id,
        "kind": kind,
        "parent_id": above,
        "position": int(numbers[-1]),
        "name": f"Part {node_id}",
        "status": status,
        "created_at": 1.0,
        "updated_at": 1.0,
    }
    return Node(**{**base, **fields})


def view_of(*nodes: Node, assignments: tuple[Assignment, ...] = (), **fields: Any) -> GoalView:
    return GoalView(
        goal(**fields), {one.node_id: one for one in nodes}, {one.assignment_id: one for one in assignments}
    )


def assignment(status: AssignmentStatus = AssignmentStatus.QUEUED, **fields: Any) -> Assignment:
    base = {
        "assignment_id": "A_1",
        "goal_id": GOAL,
        "work_node_id": "S1.1.1",
        "created_at": 1.0,
        "updated_at": 1.0,
    }
    return Assignment(**{**base, "status": status, **fields})


def dispatch(dispatch_id: str = "D_1", **fields: Any) -> Dispatch:
    base = {"ts": 5.0, "mode": Mode.SPAWN, "purpose": "work", "instruction_hash": "h1"}
    return Dispatch(**{"dispatch_id": dispatch_id, **base, **fields})


def crystallization(**fields: Any) -> Crystallization:
    base = {"crystallization_id": "C_1", "goal_id": GOAL, "work_node_id": "S1.1.1", "level": "subtask"}
    return Crystallization(**{**base, "created_at": 7.0, "summary": "the parser is there", **fields})


BLOCKED = BlockedReason(kind="human", text="which format?", question="CSV or TSV?", options=("CSV", "TSV"))
WHERE = DeliveryContext(channel="inbox", to="ada", thread="t1", account="main")


def full_change() -> Change:
    """A goal in which every field of every record differs from its default."""
    whole = goal(
        status=GoalStatus.PAUSED,
        priority=Priority.URGENT,
        tags=("import",),
        problem_statement="people type their data in by hand",
        success_criteria=("make test passes",),
        non_goals=("Excel",),
        origin=Origin(source_session_key="agent:adam:worker:adam", origin_delivery_context=WHERE),
        owner="ada",
        stakeholders=("finance",),
        repo_context_snapshot="main at 1a2b3c4, clean",
        constraints=("no new dependency",),
        assumptions=("files fit into memory",),
        risks=(Risk(risk="odd encodings", impact="wrong names", mitigation="detect"),),
        planner=PlannerRef(model_ref="opus", prompt_template_id="plan", prompt_template_hash="abc"),
        planner_inputs={"title": "Import CSV files"},
        raw_planner_output_json='{"planVersion": 1}',
        validation_errors=("phases: too many",),
        plan_revision_history=(
            PlanRevision(
                ts=3.0,
                why="too large",
                added=("S1.1.2",),
                removed=("S9",),
                changed=("T1.1",),
                moved={"a": "b"},
            ),
        ),
        budget_usd=12.5,
        asks=Asking(reason=BLOCKED, since=4.0, told=1, told_at=5.0),
        checked=CriteriaCheck(
            ts=4.0, commit="1a2b", passed=True, results=(Tested(command="make", result="ok"),), by="human"
        ),
    )
    leaf = node(
        "S1.1.1",
        NodeStatus.BLOCKED,
        objective="read a file",
        expected_outcome="rows",
        acceptance_criteria=("pytest tests/test_csv.py passes",),
        definition_of_done="merged",
        word="use the second server",
        depends_on=("S1.1.2",),
        blocks=("S1.1.3",),
        suggested_agent_id="auto",
        suggested_agent_type="coder",
        required_tools=("Bash",),
        estimated_effort="1h",
        risk_level="low",
        verify="pytest tests/test_csv.py",
        recovery_policy=Recovery.ESCALATE,
        idle_after_ms=60_000,
        overridden=True,
        blocked_reason=BLOCKED,
        started_at=2.0,
        ended_at=3.0,
    )
    sent = dispatch(
        session_key="agent:auto:worker:auto-1",
        delivery_context=WHERE,
        result=Result.TIMEOUT,
        result_at=6.0,
        run_id="7",
        notes="no receipt",
        attempts=2,
    )
    given = assignment(
        AssignmentStatus.BLOCKED,
        session_key="agent:auto:worker:auto-1",
        session_id="4f8a0c1e-0000-4000-8000-0123456789ab",
        delivery_context=WHERE,
        blocked_reason=BLOCKED,
        last_instruction_text="Write the parser.",
        instruction_hash="h1",
        dispatch_history=(sent, dispatch("D_2", ts=8.0)),
        run_id="7",
        spawned_by_key="agent:adam:worker:adam",
        last_dispatch_at=5.0,
        last_observed_activity_at=6.0,
        expected_next_update_at=9.0,
        idle_after_ms=900_000,
        retry_count=1,
        last_retry_at=8.0,
        last_progress_at=8.5,
        answer="use the second server",
        backoff_until=10.0,
        recovery_policy=Recovery.RESEND,
        applied_updates=("f1",),
        advice=Advice(ts=8.0, message="go on", question="A or B?", options=("A", "B")),
        reminders=1,
    )
    said = crystallization(
        current_state="parser without dialects",
        decisions=(Decision(decision="stdlib csv", rationale="enough"),),
        next_actions=("dialects",),
        open_questions=("encoding?",),
        known_blockers=("sample files",),
        evidence=Evidence(
            files_touched=("csv.py",),
            commands_run=("make test",),
            tests_run=(Tested(command="pytest", result="4 passed"),),
            commits=("1a2b3c4",),
            prs=("12",),
            issues=("7",),
            external_refs=("https://example.com/spec",),
        ),
        anchors=(
            Anchor(
                session_key="agent:auto:worker:auto-1",
                session_id="4f8a0c1e-0000-4000-8000-0123456789ab",
                message_ids=("msg_1",),
                run_ids=("7",),
            ),
        ),
    )
    happened = Event(
        ts=9.0,
        type="assignment.escalated",
        goal_id=GOAL,
        assignment_id="A_1",
        work_node_id="S1.1.1",
        data={"question": "CSV or TSV?"},
    )
    return Change(
        goal=whole,
        nodes=(node("P1"), node("T1.1"), leaf, node("S1.1.2"), node("S1.1.3")),
        assignments=(given,),
        crystallizations=(said,),
        events=(Event(ts=1.0, type="goal.created", goal_id=GOAL), happened),
    )
