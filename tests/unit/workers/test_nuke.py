"""Which commits a pin must name so that all of them are kept."""

from llmc.repo.worktrees import tips_of


def test_only_commits_that_are_nobodys_parent() -> None:
    """Break: return all of them; a worker with a long reflog would get a commit with a thousand parents."""
    assert tips_of([]) == []
    assert tips_of([["c", "b"], ["b", "a"], ["x", "a"]]) == ["c", "x"]
    assert tips_of([["m", "c", "x"], ["c", "b"], ["x", "b"], ["b"]]) == ["m"]
