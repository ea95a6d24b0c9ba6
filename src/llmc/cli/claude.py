"""llmc claude"""

import os

import click

from llmc.agents.claude.client import ClaudeCode
from llmc.base.errors import NotFound
from llmc.repo.project import agent_for, open_project


@click.command("claude", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Run the Claude Code client that llmc uses, for example to log in.

    That is defaults.agent_command, else the `claude` on your PATH, else the one that came with llmc's extra `claude`, which
    is not on your PATH. It gets the variables of defaults.env, as workers do.

    \b
    Examples:
      llmc claude auth login
      llmc claude auth status
      llmc claude -- --version
    """
    agent, env = _client(ctx.find_root().obj["root"])
    # As for the workers: what runs is what was found, until a person updates it.
    environment = {**os.environ, **env, "DISABLE_AUTOUPDATER": "1"}
    program = agent.program()
    os.execve(program[0], [*program, *arguments], environment)


def _client(root: str | None) -> tuple[ClaudeCode, dict[str, str]]:
    """As the root has it; before there is one, as a new one would."""
    try:
        project = open_project(root)
    except NotFound:
        if root:
            raise
        return ClaudeCode(), {}
    agent = agent_for(project)
    if isinstance(agent, ClaudeCode):
        return agent, project.config.defaults.env
    return ClaudeCode(project.config.defaults.agent_command), project.config.defaults.env
