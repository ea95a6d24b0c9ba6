"""A web server on 127.0.0.1 that receives notifications; its path is a secret that must not leak."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "T0k3n-s3cret"


class Webhook:
    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        #: its answer, and how long it takes
        self.status = 200
        self.hang = threading.Event()
        self.hang.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if outer.status == 200:
                    outer.got.append(json.loads(body))
                outer.hang.wait()
                self.send_response(outer.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> "Webhook":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.hang.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}/{SECRET}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def kinds(self) -> list[str]:
        return [body["kind"] for body in self.got]
