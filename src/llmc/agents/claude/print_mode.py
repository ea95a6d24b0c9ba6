"""`claude -p`: one question to the client without a session, and its answer."""

import json
from collections.abc import Mapping
from typing import Any

from llmc.agents.protocol import Agent, Answer
from llmc.records.worker import Spent, Tokens

#: a planner looks at the repository, and changes nothing
READ_ONLY_TOOLS = "Read,Grep,Glob"


class PrintMode:
    def __init__(self, client: Agent) -> None:
        self._client = client

    def argv(self, schema: Mapping[str, Any], model: str) -> list[str]:
        """Keeps no session, and starts none of the user's MCP servers."""
        flags = ["-p", "--output-format", "json", "--json-schema", json.dumps(schema)]
        flags += ["--no-session-persistence", "--strict-mcp-config", "--tools", READ_ONLY_TOOLS]
        return [*self._client.program(), *flags, *(["--model", model] if model else [])]

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        return self._client.environment(base, task_tools=False)

    def answer(self, stdout: str) -> Answer | None:
        return read_answer(stdout)


def read_answer(stdout: str) -> Answer | None:
    """The result in what the client printed; None if there is none."""
    try:
        result = json.loads(stdout)
    except (ValueError, RecursionError):
        return None
    if not isinstance(result, dict) or result.get("type") != "result":
        return None
    said = str(result.get("result") or "")
    if (structured := result.get("structured_output")) is not None:
        said = json.dumps(structured, ensure_ascii=False)
    status = result.get("api_error_status")
    failed = bool(result.get("is_error")) or result.get("subtype") != "success"
    errors = result.get("errors") or [said or str(result.get("subtype"))]
    return Answer(
        text=said,
        model=", ".join(_models(result)),
        spent=_spent(result),
        error="; ".join(map(str, errors)) if failed else "",
        status=status if isinstance(status, int) else 0,
    )


def _models(result: Mapping[str, Any]) -> list[str]:
    used = result.get("modelUsage")
    return sorted(map(str, used)) if isinstance(used, dict) else []


def _spent(result: Mapping[str, Any]) -> Spent:
    usage = result.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    read = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    tokens = Tokens(
        input_tokens=sum(int(_number(usage.get(name))) for name in read),
        output_tokens=int(_number(usage.get("output_tokens"))),
    )
    return Spent(tokens=tokens, cost=_number(result.get("total_cost_usd")))


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
