"""What the supervisor prints about a remediation, word for word, and in which colour. Pure."""

ENTERING = "⚠ Entering remediation mode..."
RESTARTING = "✓ Remediation complete. Restarting daemon..."
INTERRUPTED = "⚠ Remediation interrupted"


def outcome(kind: str, duration_s: float, problem: str) -> str:
    """The line about how a remediation ended."""
    if kind == "completed":
        return f"✓ Remediation completed in {duration_s:.1f}s"
    if kind == "interrupted":
        return INTERRUPTED
    return f"⚠ Remediation issue: {problem or kind}"


def style_of(text: str) -> str:
    """Red for the beginning of a remediation, green for what went well, yellow for what did not."""
    if text == ENTERING:
        return "red"
    return "green" if text.startswith("✓") else "yellow" if text.startswith("⚠") else ""
