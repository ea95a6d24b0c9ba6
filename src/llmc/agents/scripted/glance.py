"""The scripted agent writes the status file of Claude Code on purpose."""

from llmc.agents.claude.glance import glance as glance
