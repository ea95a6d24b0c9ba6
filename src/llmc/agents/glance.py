"""Whether a running agent is idle or has a dialog open, for the hot commands. Light: plain data, no models."""

from llmc.records.items import Glance


def glance(agent: object, config_dir: object, pid: int) -> Glance:
    """`agent` and `config_dir` as in a worker's record."""
    if not isinstance(config_dir, str) or not config_dir:
        return Glance()
    try:
        return _read(str(agent), config_dir, pid)
    except ImportError:  # a record without an agent, or with an unknown one: `kind_of` reads it the same way
        return _read("claude", config_dir, pid)


def _read(agent: str, config_dir: str, pid: int) -> Glance:
    """Read it with the agent's own module. agents/kinds.py is not light, and importlib costs more than the rest."""
    found: Glance = __import__(f"llmc.agents.{agent}.glance", fromlist=["glance"]).glance(config_dir, pid)
    return found
