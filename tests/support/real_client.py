"""Finds the real Claude Code client and starts it: no dialog, no account, no traffic but to a given URL."""

import importlib.util
import json
import os
from collections.abc import Iterable
from pathlib import Path

from tests.support.npm_client import find_npm_client

DUMMY_KEY = "sk-ant-dummy-" + "0" * 34


def find_client(agent: str = "claude") -> Path:
    """The native client inside the wheel `claude-agent-sdk`; `claude-2.1.197` is that version, from npm."""
    if agent != "claude":
        return find_npm_client(agent.removeprefix("claude-"))
    spec = importlib.util.find_spec("claude_agent_sdk")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("claude-agent-sdk is not installed: run `scripts/setup --client`")
    client = Path(spec.origin).parent / "_bundled" / "claude"
    if not os.access(client, os.X_OK):
        raise FileNotFoundError(f"{client} is missing or not executable: run `scripts/setup --client`")
    return client


def seed_config(config_dir: Path, trusted_paths: Iterable[Path], key: str = DUMMY_KEY) -> None:
    """Fill `config_dir` so that the client starts without a dialog in worktrees of trusted repositories.

    A trusted path is a main repository's root: since 2.1.325, trust in a parent directory does not count.
    """
    config_dir.mkdir(parents=True, exist_ok=True)
    state = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [key[-20:]], "rejected": []},
        "projects": {os.path.realpath(path): {"hasTrustDialogAccepted": True} for path in trusted_paths},
    }
    (config_dir / ".claude.json").write_text(json.dumps(state))
    (config_dir / "settings.json").write_text(json.dumps({"skipDangerousModePermissionPrompt": True}))


def client_env(config_dir: Path, home: Path, api_url: str, key: str = DUMMY_KEY) -> dict[str, str]:
    """The client's whole environment; of the caller's, only PATH."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "SHELL": "/bin/bash",
        "CLAUDE_CONFIG_DIR": str(config_dir),
        "ANTHROPIC_BASE_URL": api_url,
        "ANTHROPIC_API_KEY": key,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "IS_SANDBOX": "1",
        "CLAUDE_CODE_DISABLE_ALTERNATE_SCREEN": "1",
        "CLAUDE_CODE_ENABLE_TODO_TOOLS": "1",
    }
