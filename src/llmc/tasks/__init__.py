"""Tasks: the task list, its files, claims and dependencies."""
