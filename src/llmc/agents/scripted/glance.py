"""The status file of the scripted agent, which has the format of Claude Code's on purpose."""

from llmc.agents.claude.glance import glance as glance
