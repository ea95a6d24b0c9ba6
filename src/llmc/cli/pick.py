"""llmc pick"""

import click

from llmc.cli.output import json_option, note, paint, print_json, say
from llmc.cli.workers import project_of, worker_argument
from llmc.landing.pick import pick


@click.command("pick")
@worker_argument
@click.option("--branch", metavar="NAME", help="The branch to make (default: llmc-pick/WORKER).")
@json_option
@click.pass_context
def command(ctx: click.Context, worker: str, branch: str | None, as_json: bool) -> None:
    """Put a worker's commits, rebased onto the default branch, into the source as a new branch.

    \b
    Examples:
      llmc pick adam
      llmc pick adam --branch try-this

    The default branch, every checkout and the worker stay as they are. To land the work, use accept.
    """
    project = project_of(ctx)
    project.store.worker(worker)
    with project.worker_lock(worker):
        done = pick(project, worker, branch or f"llmc-pick/{worker}")
    if as_json:
        print_json(
            {
                "worker": worker,
                "branch": done.branch,
                "commit": done.commit,
                "base": done.base,
                "commits": done.commits,
                "dirty": list(done.dirty),
            }
        )
        return
    many = "1 commit" if done.commits == 1 else f"{done.commits} commits"
    say(paint(f"picked {many} of {worker}: {done.branch} is at {done.commit[:12]}", "green"))
    if done.dirty:
        note(f"not in it, since nobody committed it: {', '.join(done.dirty[:5])}")
