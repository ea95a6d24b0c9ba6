"""A repository behind http and a password, on loopback: git's http-backend behind a small server."""

import base64
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

USER, PASSWORD = "per son", "s3cr@t/word"
#: as written in a URL
IN_URL = "per%20son:s3cr%40t%2Fword"


class GitServer(ThreadingHTTPServer):
    """Serves every repository below a directory; notes command lines that had the password in a request."""

    daemon_threads = True

    def __init__(self, directory: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.directory = directory
        self.seen_in_argv: list[str] = []
        self.granted = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def look_at_processes(self) -> None:
        for place in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = place.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if "git" in words and any(secret in words for secret in (PASSWORD, IN_URL)):
                self.seen_in_argv.append(words)


class _Handler(BaseHTTPRequestHandler):
    server: GitServer

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self._body())

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _serve(self, body: bytes) -> None:
        self.server.look_at_processes()
        wanted = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.headers.get("Authorization") != f"Basic {wanted}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.server.granted += 1
        path, _, query = self.path.partition("?")
        env = {
            "GIT_PROJECT_ROOT": str(self.server.directory),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": USER,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type") or "",
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding") or "",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol") or "",
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.server.directory),
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True)
        head, _, data = done.stdout.partition(b"\r\n\r\n")
        fields = [line.split(": ", 1) for line in head.decode().split("\r\n") if line]
        status = next((value for name, value in fields if name == "Status"), "200 OK")
        self.send_response(int(status.split()[0]))
        for name, value in fields:
            if name != "Status":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def served(directory: Path) -> Iterator[GitServer]:
    with GitServer(directory) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
