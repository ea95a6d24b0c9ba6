"""What the hot commands ask a running agent: whether it rests, and whether a dialog is open. Light: plain data, no models."""

from llmc.records.items import Glance


def glance(agent: object, config_dir: object, pid: int) -> Glance:
    """By the agent and the directory that a worker's record names; nothing where it names none."""
    if not isinstance(config_dir, str) or not config_dir:
        return Glance()
    # Records of an older llmc name no agent. The table of agents is not asked: it is not light.
    name = agent if isinstance(agent, str) and agent.isidentifier() else "claude"
    module = __import__(
        f"llmc.agents.{name}.glance", fromlist=["glance"]
    )  # importlib costs more than all else here
    found: Glance = module.glance(config_dir, pid)
    return found
