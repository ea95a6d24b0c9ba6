"""Commit messages as they land: attribution lines gone, several commits' messages in one. Pure."""

import re

_ATTRIBUTION = re.compile(
    r"^\s*(?:🤖\s*)?Generated (?:with|by)\b.*$|^\s*Co-Authored-By:.*(?:claude|anthropic).*$",
    re.IGNORECASE | re.MULTILINE,
)


def clean(message: str) -> str:
    """A message without the agent's attribution; nothing else in it changes."""
    text = _ATTRIBUTION.sub("", message)
    text = re.sub(r"\n{3,}", "\n\n", text)
    return text.strip() + "\n"


def squashed(messages: list[str]) -> str:
    """One message for one commit: the first one leads, the others follow in order, none is dropped."""
    cleaned = [clean(message).strip() for message in messages]
    distinct = list(dict.fromkeys(text for text in cleaned if text))
    if not distinct:
        return "Work without a message\n"
    return "\n\n".join(distinct) + "\n"
