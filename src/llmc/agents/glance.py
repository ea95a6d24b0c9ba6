"""Whether a running agent is idle or has a dialog open, for the hot commands. Light: plain data, no models."""

from llmc.records.items import Glance


def glance(agent: object, config_dir: object, pid: int) -> Glance:
    """`agent` and `config_dir` as in a worker's record."""
    if not isinstance(config_dir, str) or not config_dir:
        return Glance()
    # Records of an older llmc name no agent. agents/kinds.py is not light.
    name = agent if isinstance(agent, str) and agent.isidentifier() else "claude"
    module = __import__(
        f"llmc.agents.{name}.glance", fromlist=["glance"]
    )  # importlib would cost more than the rest
    found: Glance = module.glance(config_dir, pid)
    return found
