"""A price list from the web: a server on 127.0.0.1."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from llmc.auto.prices import download
from llmc.base.errors import LlmcError, UsageError

BODY = json.dumps({"as_of": "2100-01-01", "prices": {}}).encode()


@pytest.fixture
def address() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/prices.json" else 404)
            self.end_headers()
            self.wfile.write(BODY)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_file_is_fetched_and_a_failure_is_said(address: str) -> None:
    """Break: take an error page as the file, or truncate what is too large."""
    assert download(f"{address}/prices.json", 1000) == BODY
    with pytest.raises(LlmcError, match=r"cannot fetch .*: Not Found"):
        download(f"{address}/other", 1000)
    with pytest.raises(LlmcError, match="larger than"):
        download(f"{address}/prices.json", len(BODY) - 1)
    with pytest.raises(UsageError, match=r"unsupported URL"):
        download("file:///etc/passwd", 1000)
    with pytest.raises(LlmcError, match="cannot fetch"):
        download("http://127.0.0.1:1/prices.json", 1000)
