"""The prompts llmc sends, from the templates."""

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from llmc.review.patch import quoted
from llmc.services.project import Project
from llmc.services.review import Review
from llmc.workers.model import WorkerRecord


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("llmc", "templates"),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=False,
        keep_trailing_newline=False,
    )


def task_prompt(project: Project, record: WorkerRecord, prompt: str) -> str:
    worker = project.config.workers.get(record.name)
    return (
        _templates()
        .get_template("task.md.j2")
        .render(
            role_prompt=worker.role_prompt.strip() if worker else "",
            worktree=record.worktree_path,
            root=project.root.path,
            validate=project.config.repo.validate,
            prompt=prompt,
        )
    )


def reject_prompt(project: Project, review: Review, feedback: str) -> str:
    diff, left_out = quoted(review.diff)
    return (
        _templates()
        .get_template("reject.md.j2")
        .render(
            feedback=feedback,
            worktree=review.worktree,
            base=review.base[:12],
            head=review.head[:12],
            validate=project.config.repo.validate,
            diff=diff,
            left_out=left_out,
        )
    )
