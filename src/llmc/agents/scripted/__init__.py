"""The scripted agent: behaves like Claude Code 2.1.325 in a terminal, and runs directives instead of a model.

Run as `python -m llmc.agents.scripted [flags]`. It takes the client's flags and settings, shows the same composer,
fires the same hooks, and keeps the same status file and transcript; `directives.py` is the language of its prompts.

Faults for tests, from the environment:
  LLMC_SCRIPTED_SWALLOW_ENTER=n   the first n presses of Enter are lost
  LLMC_SCRIPTED_NO_STATUS=1       no status file is written
  LLMC_SCRIPTED_START_DELAY=s     seconds before SessionStart; like the client, it loses Enter until then
"""
