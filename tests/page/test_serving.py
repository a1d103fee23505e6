"""`vramwise serve` on the wire: one folder, one machine, nothing else."""

import contextlib
import http.client
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from installed import PATIENCE
from threads import serving
from vramwise.errors import VramwiseError
from vramwise.page import serving as page_serving
from vramwise.page.serving import built_page, make_page_server


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    top = tmp_path_factory.mktemp("top")
    (top / "secret.txt").write_text("secret")
    folder = top / "page"
    (folder / "inner").mkdir(parents=True)
    for name in ("index.html", "sw.js", "worker.js", "inner/a.wasm"):
        (folder / name).write_text(f"this is {name}")
    (folder / "leads-out").symlink_to(top / "secret.txt")
    server = make_page_server(built_page(str(folder)), 0)
    with serving(server):
        yield server
    server.server_close()


def asked(server, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE)
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers={"Host": f"127.0.0.1:{server.server_port}", **headers})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_it_hands_out_its_files_with_their_types_and_its_policy(served):
    answer, body = asked(served, "/")
    assert (answer.status, body) == (200, b"this is index.html")
    assert "script-src 'self' 'wasm-unsafe-eval'" in answer.headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    assert "unsafe-inline" not in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "Set-Cookie" not in answer.headers
    assert asked(served, "/inner/a.wasm")[0].headers["Content-Type"] == "application/wasm"
    assert asked(served, "/sw.js")[0].headers["Content-Type"].startswith("text/javascript")
    assert asked(served, "/", "HEAD")[1] == b""


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/inner/../../secret.txt",
        "//etc/passwd",
        "/leads-out",
        "/inner/",
        "/inner",
        "/nothing",
        "/%00",
        "/\\..\\secret.txt",
    ],
)
def test_nothing_outside_the_folder_and_no_lists(served, path):
    answer, body = asked(served, path)
    assert answer.status in (400, 404)
    assert b"secret" not in body
    assert b"a.wasm" not in body


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "", "localhost.evil:80"]
)
def test_other_hosts_are_refused(served, host):
    assert asked(served, "/", Host=host)[0].status == 403


def test_loopback_names_are_its_own(served):
    assert asked(served, "/", Host=f"localhost:{served.server_port}")[0].status == 200
    assert served.server_address[0] == "127.0.0.1"


def test_other_origins_are_refused(served):
    assert asked(served, "/worker.js", Origin="http://evil.example")[0].status == 403
    assert asked(served, "/worker.js", Origin="null")[0].status == 403
    assert asked(served, "/worker.js", Origin=f"http://127.0.0.1:{served.server_port}")[0].status == 200
    assert asked(served, "/worker.js", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors")[0].status == 403
    framed = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"}
    assert asked(served, "/", **framed)[0].status == 403
    assert asked(served, "/", **{**framed, "Sec_Fetch_Dest": "document"})[0].status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_but_reading(served, method):
    assert asked(served, "/", method)[0].status == 501


def test_many_clients_and_those_that_say_nothing(served):
    before = threading.active_count()
    silent = [socket.create_connection(("127.0.0.1", served.server_port)) for _ in range(50)]
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda _: asked(served, "/inner/a.wasm")[0].status, range(400)))
    assert found == [200] * 400
    assert threading.active_count() <= before + len(silent) + 16
    for one in silent:
        one.close()


def test_who_speaks_slowly_is_let_go(served, monkeypatch):
    """Not when nothing has come for a while: when all of it took too long."""
    monkeypatch.setattr(page_serving, "_TO_ASK", 0.4)
    slow = socket.create_connection(("127.0.0.1", served.server_port), timeout=PATIENCE)
    letters = "GET /index.html HTTP/1.1\r\nX: " + "a" * 100
    taken = 0
    with contextlib.suppress(OSError):
        for taken, letter in enumerate(letters):  # noqa: B007
            slow.sendall(letter.encode())
            time.sleep(0.05)
    assert taken < len(letters) - 1
    assert asked(served, "/")[0].status == 200
    slow.close()


def test_who_takes_nothing_is_let_go(served, monkeypatch):
    monkeypatch.setattr(page_serving, "_TO_TAKE", 0.3)
    (served.folder / "large.json").write_bytes(b"x" * 30_000_000)
    before = threading.active_count()
    idle = [socket.create_connection(("127.0.0.1", served.server_port), timeout=PATIENCE) for _ in range(4)]
    for one in idle:
        one.sendall(f"GET /large.json HTTP/1.1\r\nHost: 127.0.0.1:{served.server_port}\r\n\r\n".encode())
    end = time.monotonic() + PATIENCE
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.05)
    assert threading.active_count() <= before
    for one in idle:
        one.close()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 200 + b"\r\n", b"431"),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET / HTTP/1.1\r\n\r\n", b"403"),
        (b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"403"),
        (b"\x16\x03\x01\0\0no http\r\n\r\n", b"400"),
        (b"GET / HTTP/9.9\r\n\r\n", b"505"),
    ],
)
def test_what_is_no_request_is_refused(served, sent, status):
    with socket.create_connection(("127.0.0.1", served.server_port), timeout=PATIENCE) as client:
        client.sendall(sent)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_WR)
        said = b""
        with contextlib.suppress(OSError):
            while piece := client.recv(65536):
                said += piece
    assert status in said.partition(b"\r\n")[0]
    assert b"this is index.html" not in said


def test_no_page_is_one_sentence(tmp_path):
    with pytest.raises(VramwiseError, match="contains no built page"):
        built_page(str(tmp_path))


def test_a_port_that_is_taken_is_one_sentence(served):
    with pytest.raises(VramwiseError, match="choose another"):
        make_page_server(served.folder, served.server_port)
