"""`vramwise serve`: the built page on this machine's own loopback address, with the standard library alone.

A GET or HEAD of a file of the folder is all there is. Other hosts and origins are refused, so that no page of somebody
else's reaches it under a name of theirs; nothing is written, run or read besides.
"""

from __future__ import annotations

from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedReader, RawIOBase
from pathlib import Path
from socket import socket
from threading import BoundedSemaphore
from time import monotonic
from typing import Any

from vramwise.errors import VramwiseError

HOST = "127.0.0.1"
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; "
    "style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types vramwise"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
# Scripts of a worker make none of the page's elements, and Pyodide imports its parts by itself.
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
# Seconds for a client to say what it wants, and to take what it asked for, however it spreads them; how many clients
# are answered at once.
_TO_ASK = 10
_TO_TAKE = 60
_AT_ONCE = 128
_PIECE = 1 << 20
_MOMENT = 0.001
_HERE = Path(__file__).resolve().parent


def page_folder(named: str | None = None) -> Path:
    """The built page: what is named, else what the package ships, else what a checkout has built."""
    places = [Path(named)] if named else [_HERE / "site", _HERE.parents[2] / "dist" / "page"]
    for place in places:
        if (place / "index.html").is_file() and (place / "sw.js").is_file():
            return place.resolve()
    if named:
        raise VramwiseError(f"{named} contains no built page: run `make page`, or use the zip of a release")
    raise VramwiseError(
        "the page is not in this installation: build it with `make page` in a checkout, or unpack vramwise-page.zip of "
        "the release and name the folder with --folder"
    )


class _Until(RawIOBase):
    """What a client says, up to a moment."""

    def __init__(self, connection: socket, seconds: float) -> None:
        self._connection, self._end = connection, monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(max(_MOMENT, self._end - monotonic()))
        return self._connection.recv_into(buffer)


class PageHandler(SimpleHTTPRequestHandler):
    """Hands out files of one folder to this machine."""

    protocol_version = "HTTP/1.1"
    server_version = "vramwise"
    sys_version = ""
    server: PageServer

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, directory=str(args[2].folder), **more)

    def setup(self) -> None:
        """One request a connection, read in one allowance of time: nobody holds a place by saying little, slowly."""
        super().setup()
        self.connection.settimeout(_TO_ASK)
        self.rfile = BufferedReader(_Until(self.connection, _TO_ASK))

    def parse_request(self) -> bool:
        """The request; the connection ends with its answer, which is what the client hears too."""
        understood = super().parse_request()
        self.close_connection = True
        return understood

    def copyfile(self, source: Any, outputfile: Any) -> None:
        """The file's bytes, in one allowance of time; the system hands them over, so that none are held here."""
        end, sent, more = monotonic() + _TO_TAKE, 0, 1
        while more:
            self.connection.settimeout(max(_MOMENT, end - monotonic()))
            more = self.connection.sendfile(source, sent, _PIECE)
            sent += more

    def send_head(self) -> Any:
        """A file, or why not; nothing outside the folder, no list of a folder."""
        if not self._ours():
            self.send_error(HTTPStatus.FORBIDDEN, "this page is for this machine's own browser")
            return None
        if not self._inside():
            self.send_error(HTTPStatus.NOT_FOUND, "there is no such file")
            return None
        return super().send_head()

    def _inside(self) -> bool:
        """A file of the folder, wherever links lead."""
        try:
            path = Path(self.translate_path(self.path)).resolve()
            path = path / "index.html" if path == self.server.folder else path
            return path.is_relative_to(self.server.folder) and path.is_file()
        except (OSError, ValueError):  # a NUL, a name that is too long
            return False

    def _ours(self) -> bool:
        """Asked for under a loopback name, by nobody else's page."""
        hosts = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}
        origin = self.headers.get("Origin")
        site = self.headers.get("Sec-Fetch-Site")
        if self.headers.get("Host") not in hosts or (origin and origin not in {f"http://{host}" for host in hosts}):
            return False
        # A link from elsewhere may lead here; a page from elsewhere may not embed or fetch anything of it.
        asked = self.headers.get("Sec-Fetch-Mode"), self.headers.get("Sec-Fetch-Dest")
        return site in (None, "same-origin", "none") or asked == ("navigate", "document")

    def list_directory(self, path: Any) -> None:
        """No folder is listed."""
        self.send_error(HTTPStatus.NOT_FOUND, "there is no such file")

    def guess_type(self, path: Any) -> str:
        """By the name, the same on every machine."""
        return _TYPES.get(Path(str(path)).suffix, _TEXT)

    def end_headers(self) -> None:
        """The policy goes with every answer: a worker has no other."""
        worker = getattr(self, "path", "").partition("?")[0].endswith(("worker.js", "sw.js"))
        self.send_header("Content-Security-Policy", _WORKER_POLICY if worker else f"{POLICY}; frame-ancestors 'none'")
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nobody needs to know who looked at what."""


class PageServer(ThreadingHTTPServer):
    """The page of one folder on the loopback address; answers a bounded number of clients at once."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self._room = BoundedSemaphore(_AT_ONCE)
        super().__init__((HOST, port), PageHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Wait for room, so that many clients do not become many threads."""
        self._room.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room again."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error."""

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        return f"http://{HOST}:{self.server_port}/"


def make_page_server(folder: Path, port: int) -> PageServer:
    """A server that listens; VramwiseError where the port is taken."""
    try:
        return PageServer(folder, port)
    except OSError as error:
        raise VramwiseError(f"port {port} cannot be used: {error.strerror}; choose another with --port") from error
