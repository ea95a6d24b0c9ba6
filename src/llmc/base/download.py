"""A file from the web, at a person's command only: llmc fetches nothing by itself."""

import http.client
import urllib.error
import urllib.request

from llmc.base.errors import LlmcError, UsageError


def download(url: str, most_bytes: int, timeout_s: float = 30) -> bytes:
    """The body of an http or https URL."""
    if not url.startswith(("https://", "http://")):
        raise UsageError(f"{url} is neither a file nor an http URL", hint="Name a file, or an https URL.")
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "llmc"})
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            body: bytes = answer.read(most_bytes + 1)
    except (OSError, http.client.HTTPException, ValueError) as error:
        said = getattr(error, "reason", None) or error
        raise LlmcError(
            f"{url} could not be fetched: {said}", hint="Fetch it yourself, and name the file."
        ) from error
    if len(body) > most_bytes:
        raise LlmcError(f"{url} is larger than {most_bytes // 10**6} MB", hint="Is it the right one?")
    return body
