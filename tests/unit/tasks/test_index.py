"""After every change, the index says what a complete scan would say."""

from hypothesis import given
from hypothesis import strategies as st

from llmc.base.names import TaskId
from llmc.records.task import Task, TaskStatus
from llmc.tasks.rules.graph import Index, completed_ids, cycle, dangling, needs, states, stuck

IDS = st.sampled_from([TaskId(str(number)) for number in range(1, 8)])
FEW = st.lists(IDS, max_size=2, unique=True).map(tuple)
TASKS = st.builds(
    Task,
    id=IDS,
    subject=st.just("x"),
    description=st.just(""),
    status=st.sampled_from(list(TaskStatus)),
    blocks=FEW,
    blocked_by=FEW,
    owner=st.sampled_from(["", "", "auto-1"]),
    metadata=st.sampled_from([{}, {}, {"llmc": {"hold": "proposed"}}]),
)
CHANGES = st.lists(TASKS | IDS, max_size=4)


@given(st.lists(st.tuples(CHANGES, st.frozensets(IDS, max_size=2)), max_size=6))
def test_it_says_what_a_look_at_everything_says(
    steps: list[tuple[list[Task | TaskId], frozenset[TaskId]]],
) -> None:
    """Break: judge only the changed task and not its dependents, or forget the edges of the old one."""
    index = Index()
    known: dict[TaskId, Task] = {}
    for changes, ledger in steps:
        applied: dict[TaskId, Task | None] = {}
        for change in changes:
            applied[change.id if isinstance(change, Task) else change] = (
                change if isinstance(change, Task) else None
            )
        for task_id, task in applied.items():
            known.pop(task_id, None)
            if task is not None:
                known[task_id] = task
        index.apply(applied, ledger)
        tasks = list(known.values())
        completed = completed_ids(tasks, ledger)
        edges = needs(tasks)
        whole = states(tasks, edges, completed)
        assert index.ready == {task for task, state in whole.items() if state == "ready"}
        opened = [task for task in tasks if task.id not in completed]
        wanted = {(row.task, row.missing) for row in dangling(opened, completed | set(known))}
        assert {(row.task, row.missing) for row in index.dangling} == wanted
        full = cycle(
            {task: waits for task, waits in edges.items() if task in known and task not in completed}
        )
        members = [task for found in index.cycles for task in found]
        assert bool(members) == bool(full)
        assert set(members) <= set(known) - completed
        assert len(members) == len(set(members))
        assert not index.ready & set(members)
        told = stuck(index.dangling, index.cycles)
        whole = Index(known, ledger)
        assert told == stuck(whole.dangling, whole.cycles), "as from a complete scan"


def test_a_cycle_that_is_fixed_is_gone() -> None:
    """Break: keep what was found once."""
    one, two = TaskId("1"), TaskId("2")
    index = Index()
    first = Task(one, "a", "", TaskStatus.PENDING, blocked_by=(two,))
    index.apply({one: first, two: Task(two, "b", "", TaskStatus.PENDING, blocked_by=(one,))}, ())
    assert set(*index.cycles) == {one, two}
    index.apply({two: Task(two, "b", "", TaskStatus.PENDING)}, ())
    assert index.cycles == ()
