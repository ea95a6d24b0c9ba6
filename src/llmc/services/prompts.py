"""The prompts llmc sends, from the templates."""

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from llmc.services.project import Project
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
