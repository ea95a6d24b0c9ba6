"""Run a fleet of Claude Code agents on one repository."""

__version__ = "0.1.0"
