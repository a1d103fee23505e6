"""Over HTTP only who knows the token is answered; what strangers send reaches neither the server nor its log."""

import os
import re
import socket

import pytest

pytest.importorskip("mcp")

from agent_sessions import TOKEN, http_server, talk
from test_transports import posted

URL = re.compile(rb"serving on http://127\.0\.0\.1:(\d+)/mcp\?token=([\w-]{43})\n")


async def lists(client):
    return len((await client.list_tools()).tools)


@pytest.fixture(scope="module")
def server():
    with http_server() as server:
        yield server


def test_the_token_opens_as_header_and_in_the_url(server):
    assert talk(server.url(), lists) >= 9
    for scheme in ("Bearer", "bearer"):
        assert posted(server.port, path="/mcp", Authorization=f"{scheme} {TOKEN}") == 200


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/mcp", {}),
        ("/", {}),
        ("/mcp?token=", {}),
        ("/mcp?token=wrong", {}),
        ("/mcp?token=%ff%00", {}),
        (f"/mcp?other={TOKEN}", {}),
        ("/mcp", {"Authorization": "Bearer wrong"}),
        ("/mcp", {"Authorization": "Bearer"}),
        ("/mcp", {"Authorization": "Bearer \xff"}),
        ("/mcp", {"Authorization": f"Basic {TOKEN}"}),
        ("/mcp", {"Authorization": TOKEN}),
        ("/mcp", {"Cookie": f"token={TOKEN}"}),
        ("/mcp", {"Host": "evil.example"}),
    ],
)
def test_without_the_token_nothing_is_answered(server, path, headers):
    assert posted(server.port, path=path, **headers) == 401


def test_the_refusal_is_one_sentence_that_says_what_to_send(server):
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"GET /mcp HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"www-authenticate: Bearer\r\n" in answer
    assert b"Authorization: Bearer TOKEN" in answer
    assert TOKEN.encode() not in answer


def test_no_byte_of_a_request_acts_on_the_terminal(server):
    """Neither in a header that the log quotes, nor in a method, a path or a body."""
    escape = "\x1b]0;owned\x07\x9b31m"
    good = f"Host: 127.0.0.1:{server.port}"
    sent = [
        f"POST /mcp?token={TOKEN} HTTP/1.1\r\nHost: {escape}\r\n",
        f"POST /mcp?token={TOKEN} HTTP/1.1\r\n{good}\r\nOrigin: {escape}\r\n",
        f"POST /mcp?token={TOKEN} HTTP/1.1\r\n{good}\r\nMCP-Protocol-Version: {escape}\r\n",
        f"POST /mcp?token={TOKEN} HTTP/1.1\r\n{good}\r\nMcp-Session-Id: {escape}\r\n",
        f"POST /mcp HTTP/1.1\r\nHost: {escape}\r\n",
        f"GET /{escape} HTTP/1.1\r\n{good}\r\n",
        f"{escape} / HTTP/1.1\r\n{good}\r\n",
        f"POST /mcp?token={TOKEN} HTTP/1.1\r\n{good}\r\nUpgrade: {escape}\r\nConnection: upgrade\r\n",
    ]
    for head in sent:
        head += "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
            body = '{"jsonrpc": "2.0", "id": 1, "method": "\\u001b[31m"}'
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode("latin-1"))
            assert client.recv(100).startswith(b"HTTP/1.1 ")
    said = server.said()
    assert b"Invalid Host header: \\x1b]0;owned\\x07" in said
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]", said)


def test_a_random_token_is_printed_once_and_another_each_time():
    from vramwise.mcp.http import usable_token

    with http_server(VRAMWISE_MCP_TOKEN="") as server:
        [(_, token)] = URL.findall(server.said())
        assert server.said().count(token) == 1
        assert posted(server.port, path=f"/mcp?token={token.decode()}") == 200
        assert posted(server.port) == 401
    assert len({token.decode(), usable_token(None), usable_token(None)}) == 3


def test_a_token_of_the_users_own_is_not_printed(server):
    assert b"serving on" in server.said()
    assert TOKEN.encode() not in server.said()


def test_without_a_token_at_all_it_warns():
    with http_server("--no-token") as server:
        assert posted(server.port, path="/mcp") == 200
        assert posted(server.port, path="/mcp", Host="evil.example") == 421
        assert b"any user of this machine can call this server" in server.said()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--token", "a b"), "not allowed in a URL or header"),
        (("--token", "é"), "not allowed in a URL or header"),
        (("--token", "x", "--no-token"), "cannot be combined"),
        (("--time-limit", "0"), "--time-limit"),
        (("--time-limit", "nan"), "--time-limit"),
    ],
)
def test_bad_options_are_one_sentence(words, said, vramwise, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    refused = vramwise("mcp", "--http", *words)
    assert refused.exit_code == 2
    assert said in refused.stderr + str(refused.exception)


def test_the_doctor_asks_a_running_server(server, vramwise, monkeypatch):
    monkeypatch.setenv("VRAMWISE_MCP_TOKEN", TOKEN)
    shown = vramwise("mcp", "doctor", "--http", "--port", server.port)
    assert shown.exit_code == 0
    assert f"answers over HTTP on http://127.0.0.1:{server.port}/mcp" in shown.stdout
    refused = vramwise("mcp", "doctor", "--http", "--port", server.port, "--token", "wrong")
    assert refused.exit_code == 2
    assert "with this token?" in str(refused.exception)
    assert os.environ["VRAMWISE_MCP_TOKEN"] not in str(refused.exception)
