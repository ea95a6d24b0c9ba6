"""A web server on loopback that answers every GET with `hello`."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def web_server(host: str = "127.0.0.1") -> Iterator[int]:
    with http.server.ThreadingHTTPServer((host, 0), Answer) as made:
        threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
        yield made.server_address[1]
        made.shutdown()
