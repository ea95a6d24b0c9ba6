"""Render the prompts that llmc sends from templates."""

import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from llmc.base import inside
from llmc.base.files import read_text
from llmc.landing.review import Review
from llmc.landing.rules import quoted
from llmc.records.worker import WorkerRecord
from llmc.repo import git
from llmc.repo.project import Project
from llmc.repo.rules import conflicts
from llmc.sessions.rules.decide import MAX_ROUNDS, GitFacts, unresolved

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def _templates() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined  # slow to import, and rarely needed

    return Environment(
        loader=PackageLoader("llmc", "templates"),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=False,
        keep_trailing_newline=False,
    )


def _rendered(template: str, **fields: object) -> str:
    return _templates().get_template(template).render(**fields)


def task_prompt(project: Project, record: WorkerRecord, prompt: str) -> str:
    worker = project.config.workers.get(record.name)
    return _rendered(
        "task.md.j2",
        role_prompt=worker.role_prompt.strip() if worker else "",
        worktree=record.worktree_path,
        root=project.root.path,
        validate=project.config.repo.validate,
        prompt=prompt,
    )


def task_of(project: Project, record: WorkerRecord, prompt_id: str, sent: str) -> str:
    """The task as the user wrote it, from the sent prompt: the reverse of `task_prompt`."""
    sent = read_text(project.root.prompts / f"{prompt_id}.md") or sent
    mark = "\0"
    above = task_prompt(project, record, mark).partition(mark)[0].rstrip().rpartition("\n")[2]
    _, found, task = sent.partition(f"{above}\n\n")
    return task.strip() if found else ""


def reject_prompt(project: Project, review: Review, feedback: str) -> str:
    diff, left_out = quoted(review.diff)
    return _rendered(
        "reject.md.j2",
        feedback=feedback,
        worktree=review.worktree,
        base=review.parting[:12],
        head=review.head[:12],
        validate=project.config.repo.validate,
        diff=diff,
        left_out=left_out,
    )


def self_review_prompt(project: Project, record: WorkerRecord) -> str:
    worktree = Path(record.worktree_path)
    base = git.merge_base(worktree, project.base, "HEAD")
    return _rendered(
        "review.md.j2",
        worktree=worktree,
        base=base[:12] if base else f"origin/{project.config.repo.default_branch}",
        instructions=project.config.defaults.self_review.prompt.strip(),
        validate=project.config.repo.validate,
        task=record.current_prompt,
    )


def sent_back_prompt(
    project: Project, record: WorkerRecord, command: str, output: str, round_: int, rounds: int
) -> str:
    """The prompt for an auto worker whose work failed a check."""
    return _rendered(
        "sent_back.md.j2",
        worktree=record.worktree_path,
        branch=project.config.repo.default_branch,
        command=command,
        output=conflicts.printable(output) or "(no output)",
        round=round_,
        rounds=rounds,
    )


def not_landed_prompt(project: Project, record: WorkerRecord, problem: str, round_: int, rounds: int) -> str:
    """The prompt for an auto worker whose work cannot land as it is."""
    return _rendered(
        "not_landed.md.j2",
        worktree=record.worktree_path,
        branch=project.config.repo.default_branch,
        own_branch=record.branch,
        problem=conflicts.printable(problem),
        round=round_,
        rounds=rounds,
    )


def near_budget_prompt(words: str) -> str:
    return _rendered("near_budget.md.j2", words=words)


def ask_to_commit_prompt(record: WorkerRecord) -> str:
    return _rendered("ask_to_commit.md.j2", worktree=record.worktree_path)


def validation_prompt(project: Project, record: WorkerRecord) -> str:
    """The prompt for a worker whose resolved rebase failed validation."""
    return _rendered(
        "validation.md.j2",
        branch=project.config.repo.default_branch,
        worktree=record.worktree_path,
        round=record.resolution_attempts + 1,
        rounds=MAX_ROUNDS,
        validate=project.config.repo.validate,
        output=conflicts.printable(record.validation_output),
    )


def conflict_prompt(project: Project, record: WorkerRecord, facts: GitFacts) -> tuple[str, tuple[str, ...]]:
    """The prompt about the conflicts in a worktree, and all unmerged paths."""
    worktree = Path(record.worktree_path)
    branch = project.config.repo.default_branch
    stages = conflicts.parse_stages(git.git(worktree, "ls-files", "-u", "-z").stdout)
    found = conflicts.classify(stages, _renames(worktree, "HEAD"), _renames(worktree, "REBASE_HEAD"))
    room = conflicts.MAX_LINES
    files: list[dict[str, object]] = []
    markers: list[int] = []
    for conflict in found:
        texts = [inside.read_text(worktree, name) for name in conflict.files]
        excerpts = [region for text in texts for region in conflicts.regions(text)]
        shown, room = conflicts.bounded(excerpts, room)
        markers.append(sum(map(conflicts.marker_count, texts)))
        files.append(
            {
                "path": conflicts.printable(conflict.path),
                "kind": conflict.kind,
                "markers": markers[-1],
                "about": conflicts.describe(conflict, markers[-1], branch),
                "in_main": conflicts.printable(conflict.in_main or ""),
                "in_worker": conflicts.printable(conflict.in_worker or ""),
                "quoted": _quoted(conflict.path),
                "quoted_main": _quoted(conflict.in_main or ""),
                "quoted_worker": _quoted(conflict.in_worker or ""),
                "regions": shown,
                "more": len(shown) < len(excerpts),
            }
        )
    text = _rendered(
        "conflict.md.j2",
        branch=branch,
        worktree=worktree,
        round=record.resolution_attempts + 1,
        rounds=MAX_ROUNDS,
        left=unresolved(facts),
        in_progress=facts.rebasing,
        base=record.rebase_base,
        summary=conflicts.summary(markers),
        files=files,
        validate=project.config.repo.validate,
        task=record.current_prompt,
    )
    return text, tuple(stages)


def _quoted(path: str) -> str:
    return shlex.quote(conflicts.printable(path)) if path else ""


def _renames(worktree: Path, side: str) -> dict[str, str]:
    """Renames of one side since the parent of the commit being applied."""
    diff = ["diff", "--name-status", "-M", "-z", "--diff-filter=R", "REBASE_HEAD^", side]
    done = git.git(worktree, *diff, check=False)
    return conflicts.parse_renames(done.stdout) if done.ok else {}
