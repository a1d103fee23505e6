"""`vramwise serve`: the page on this machine's loopback address, with the standard library only.

It answers GET or HEAD of a file in the folder, and the page's requests if they bring the key of the link that `serve`
printed. Other hosts and origins are refused, so that no foreign page can reach it under a name of its own; nothing else
is read, written or run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from hmac import compare_digest
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedReader, RawIOBase
from pathlib import Path
from secrets import token_urlsafe
from socket import socket
from tempfile import TemporaryDirectory
from threading import BoundedSemaphore
from time import monotonic
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.limits import ceilings
from vramwise.page.folder import local_files, policy, write_files
from vramwise.page.local import Answerer

HOST = "127.0.0.1"
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
# Worker scripts create no page elements, and Pyodide imports its parts itself.
_WORKER_POLICY = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".json": "application/json",
    ".zip": "application/zip",
    ".gz": "application/gzip",
}
_TEXT = "text/plain; charset=utf-8"
# Seconds for a client to send its request, and to receive the answer, in total; and how many clients are answered at
# once.
_TO_ASK = 10
_TO_TAKE = 60
_AT_ONCE = 128
_PIECE = 1 << 20
_MOMENT = 0.001
# A snapshot, and a config with its settings before it.
_MOST_ASKED = ceilings.RECORDING_BYTES + 4 * ceilings.CONFIG_BYTES
_KEY_HEADER = "X-Vramwise-Key"


def built_page(named: str) -> Path:
    """Return the folder of a page that was built with Pyodide. Raises VramwiseError if it contains none."""
    folder = Path(named)
    if (folder / "index.html").is_file() and (folder / "sw.js").is_file():
        return folder.resolve()
    raise VramwiseError(f"{named} contains no built page: run `make page`, or use the zip of a release")


class _Until(RawIOBase):
    """A client's input, up to a deadline."""

    def __init__(self, connection: socket, seconds: float) -> None:
        self._connection, self._end = connection, monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(max(_MOMENT, self._end - monotonic()))
        return self._connection.recv_into(buffer)


class PageHandler(SimpleHTTPRequestHandler):
    """Serves files of one folder to this machine."""

    protocol_version = "HTTP/1.1"
    server_version = "vramwise"
    sys_version = ""
    server: PageServer

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, directory=str(args[2].folder), **more)

    def setup(self) -> None:
        """Limit the connection to one request with a total time limit, so that slow clients cannot hold a slot."""
        super().setup()
        self.connection.settimeout(_TO_ASK)
        self.rfile = BufferedReader(_Until(self.connection, _TO_ASK))

    def parse_request(self) -> bool:
        """Parse the request; the connection closes after the answer."""
        understood = super().parse_request()
        self.close_connection = True
        return understood

    def copyfile(self, source: Any, outputfile: Any) -> None:
        """Send the file's bytes within a total time limit; the system sends them, so none are held here."""
        end, sent, more = monotonic() + _TO_TAKE, 0, 1
        while more:
            self.connection.settimeout(max(_MOMENT, end - monotonic()))
            more = self.connection.sendfile(source, sent, _PIECE)
            sent += more

    def send_head(self) -> Any:
        """Send the headers of a file, or an error; nothing outside the folder, no directory listing."""
        if not self._ours():
            self.send_error(HTTPStatus.FORBIDDEN, "this page is for this machine's own browser")
            return None
        if not self._inside():
            self.send_error(HTTPStatus.NOT_FOUND, "there is no such file")
            return None
        return super().send_head()

    def do_POST(self) -> None:
        """Answer a request of the page: lines of progress, and the answer as the last line."""
        answerer = self.server.answerers.get(self.path)
        size = self.headers.get("Content-Length") or ""
        if answerer is None:
            self.send_error(HTTPStatus.NOT_IMPLEMENTED, "this page is only read")
        elif not self._ours() or not compare_digest(
            self.headers.get(_KEY_HEADER, "").encode(), self.server.key.encode()
        ):
            self.send_error(HTTPStatus.FORBIDDEN, "use the link that vramwise serve printed")
        elif not size.isascii() or not size.isdigit() or len(size) > 12 or int(size) > _MOST_ASKED:
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "a request may have 260 MiB")
        else:
            asked = self.rfile.read(int(size))
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "application/x-ndjson")
            self.end_headers()
            with closing(answerer.answer(asked, self.connection)) as lines:
                for line in lines:
                    self.connection.settimeout(_TO_TAKE)
                    self.wfile.write(line + b"\n")

    def _has_key(self) -> bool:
        return compare_digest(self.headers.get(_KEY_HEADER, "").encode(), self.server.key.encode())

    def _inside(self) -> bool:
        """Whether the path is a file in the folder, after resolving links."""
        try:
            path = Path(self.translate_path(self.path)).resolve()
            path = path / "index.html" if path == self.server.folder else path
            return path.is_relative_to(self.server.folder) and path.is_file()
        except (OSError, ValueError):  # a NUL, a name that is too long
            return False

    def _ours(self) -> bool:
        """Whether the request uses a loopback name and does not come from another site's page."""
        hosts = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}
        origin = self.headers.get("Origin")
        site = self.headers.get("Sec-Fetch-Site")
        if self.headers.get("Host") not in hosts or (origin and origin not in {f"http://{host}" for host in hosts}):
            return False
        # Links from other sites may lead here; other sites' pages may not embed or fetch anything.
        asked = self.headers.get("Sec-Fetch-Mode"), self.headers.get("Sec-Fetch-Dest")
        return site in (None, "same-origin", "none") or asked == ("navigate", "document")

    def list_directory(self, path: Any) -> None:
        """Refuse to list folders."""
        self.send_error(HTTPStatus.NOT_FOUND, "there is no such file")

    def guess_type(self, path: Any) -> str:
        """Return the type by file extension, the same on every machine."""
        return _TYPES.get(Path(str(path)).suffix, _TEXT)

    def end_headers(self) -> None:
        """Send the policy with every answer: a worker has no other."""
        worker = getattr(self, "path", "").partition("?")[0].endswith(("worker.js", "sw.js"))
        self.send_header(
            "Content-Security-Policy", _WORKER_POLICY if worker else f"{policy(wasm=True)}; frame-ancestors 'none'"
        )
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing."""


class PageServer(ThreadingHTTPServer):
    """Serves the page of one folder on the loopback address, to a bounded number of clients at once."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, folder: Path, port: int, *, answers: bool = False) -> None:
        self.folder = folder
        self.key = token_urlsafe(16)
        self.policy = f"{policy(wasm=not answers)}; frame-ancestors 'none'"
        # Without answers, the page's own worker computes everything.
        self.answerers = {f"/ask/{line}": Answerer() for line in ("quick", "slow")} if answers else {}
        self._room = BoundedSemaphore(_AT_ONCE)
        super().__init__((HOST, port), PageHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Wait for a free slot, so that many clients do not become many threads."""
        self._room.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and release the slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that went away."""

    @property
    def address(self) -> str:
        """The address for a browser, with the key if the page asks this server."""
        return f"http://{HOST}:{self.server_port}/" + (f"#key={self.key}" if self.answerers else "")

    def server_close(self) -> None:
        """Stop listening, and the processes that answer."""
        super().server_close()
        for answerer in self.answerers.values():
            answerer.stop()


def make_page_server(folder: Path, port: int, *, answers: bool = False) -> PageServer:
    """Return a listening server; with `answers`, one that answers the page's requests.

    Raises VramwiseError if the port cannot be used.
    """
    try:
        return PageServer(folder, port, answers=answers)
    except OSError as error:
        raise VramwiseError(f"port {port} cannot be used: {error.strerror}; choose another with --port") from error


@contextmanager
def served_page(folder: str | None, port: int) -> Iterator[PageServer]:
    """Yield a listening server: of a built page in `folder`, otherwise of the page that this process's Python answers.

    Raises VramwiseError if there is no page in the folder or the port cannot be used.
    """
    with TemporaryDirectory(prefix="vramwise-page-") as made:
        if folder is None:
            write_files(local_files(), Path(made))
        server = make_page_server(built_page(folder or made), port, answers=folder is None)
        try:
            yield server
        finally:
            server.server_close()
