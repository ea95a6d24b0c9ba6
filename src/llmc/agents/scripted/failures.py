"""How a turn can fail: errors of the API, the usage limit, and a crash of the client."""

import os
import time

#: HTTP status -> the `error` of StopFailure, as measured
LABELS = {
    400: "unknown",
    401: "authentication_failed",
    403: "authentication_failed",
    404: "model_not_found",
    413: "invalid_request",
    429: "rate_limit",
    500: "server_error",
    529: "server_error",
}


class ApiError(Exception):
    """The request failed for good: StopFailure instead of Stop."""

    def __init__(self, label: str, text: str) -> None:
        super().__init__(text)
        self.label = label
        self.text = text


def api_error(arg: str) -> None:
    code = int(arg.split()[0]) if arg.split() else 500
    texts = {
        401: "Please run /login · API Error: 401 scripted 401",
        403: "Please run /login · API Error: 403 scripted 403",
        404: "There's an issue with the selected model. It may not exist or you may not have access to it.",
        413: "Request too large (max 32MB). Double press esc to go back and try with a smaller file.",
        429: "API Error: Request rejected (429) · scripted 429",
    }
    server = code >= 500
    fallback = f"API Error: {code} scripted {code}" + (
        ". This is a server-side issue, usually temporary — try again in a moment." if server else ""
    )
    raise ApiError(LABELS.get(code, "server_error" if server else "unknown"), texts.get(code, fallback))


def usage_limit(arg: str) -> None:
    """The text names the reset time twice: for people and programs."""
    reset = int(time.time() + float(arg.split()[0] if arg.split() else 3600))
    iso = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(reset))
    raise ApiError("rate_limit", f"You've hit your usage limit · resets {iso} ({reset})")


def crash(arg: str) -> None:
    """Gone at once: no hooks, the status file stays."""
    os._exit(int(arg.split()[0]) if arg.split() else 1)
