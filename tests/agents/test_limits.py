"""A call has a limit of time and memory, and ends when its client cancels it or is gone.

Each test waits for what must happen, however long a busy machine takes.
"""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("mcp")

import anyio
from agent_sessions import TOKEN, environment, http_server, over_stdio, talk

ENDLESS = (str(Path(__file__).with_name("endless_server.py")),)
ABOUT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
CALL = {"id": 7, "method": "tools/call", "params": {"name": "list_gpus", "arguments": {}}}
PATIENCE = 120  # seconds until a test gives up: what it waits for takes one


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server for the tests that leave it running, with the file that its endless call writes."""
    pid_file = tmp_path_factory.mktemp("endless") / "pid"
    with endless(pid_file) as server:
        server.pid_file = pid_file
        yield server


@pytest.fixture
def pid_file(tmp_path):
    return tmp_path / "pid"


def alive(pid):
    """Whether a process computes; one that ended and that nobody has waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return sys.platform != "linux"


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


def ended(pid):
    until(lambda: not alive(pid))
    return True


def started(pid_file):
    """The process that computes now; the file is gone, for the next."""
    until(pid_file.exists)
    pid = int(pid_file.read_text())
    pid_file.unlink()
    return pid


@contextlib.contextmanager
def endless(pid_file, *words):
    with http_server(*words, start=ENDLESS, ENDLESS_PID=str(pid_file)) as server:
        yield server


def hold_expired(pid_file, late):
    assert late.is_error
    assert "took longer than 1 s and was stopped" in late.content[0].text
    assert "--time-limit" in late.content[0].text
    assert ended(started(pid_file))


def test_a_call_past_the_time_limit_is_stopped_over_stdio(pid_file):
    words = ("--time-limit", "1")
    hold_expired(pid_file, over_stdio(computes, *words, start=ENDLESS, ENDLESS_PID=str(pid_file)))


def test_a_call_past_the_time_limit_is_stopped_over_http(pid_file):
    with endless(pid_file, "--time-limit", "1") as server:
        hold_expired(pid_file, talk(server.url(), computes))


async def computes(client):
    return await client.call_tool("list_gpus", {})


def cancels(pid_file):
    """A conversation that cancels a call while it is computed, and then makes another."""

    async def conversation(client):
        async with anyio.create_task_group() as group:
            group.start_soon(computes, client)
            pid = await anyio.to_thread.run_sync(started, pid_file)
            group.cancel_scope.cancel()
        await anyio.to_thread.run_sync(ended, pid)
        return await client.call_tool("lookup_key", {"key": "sequence_len"})

    return conversation


def test_a_cancelled_call_is_killed_over_stdio(pid_file):
    assert not over_stdio(cancels(pid_file), start=ENDLESS, ENDLESS_PID=str(pid_file)).is_error


def test_a_cancelled_call_is_killed_over_http(server):
    assert not talk(server.url(), cancels(server.pid_file)).is_error


class Handshake:
    """A client of an older protocol, which is given a session id, and cancels by a request of its own."""

    def __init__(self, port):
        self.port, self.session = port, {}
        response = self.post({"id": 0, "method": "initialize", "params": ABOUT})
        self.session = {"Mcp-Session-Id": response.headers["Mcp-Session-Id"]}

    def post(self, message):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        headers = {
            "Authorization": f"Bearer {TOKEN}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **self.session,
        }
        with contextlib.closing(connection):
            connection.request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", **message}), headers)
            response = connection.getresponse()
            response.text = response.read().decode()
        return response

    def call(self, answers):
        with contextlib.suppress(OSError, http.client.HTTPException):
            answers.append(self.post(CALL).text)

    def cancel(self, request):
        return self.post({"method": "notifications/cancelled", "params": {"requestId": request}}).status


def test_a_client_cancels_its_own_call_by_a_notification_alone(server):
    client, other = Handshake(server.port), Handshake(server.port)
    assert client.session != other.session
    answers = []
    calling = threading.Thread(target=client.call, args=(answers,))
    calling.start()
    pid = started(server.pid_file)
    assert other.cancel(7) == client.cancel(8) == 202
    other.post({"id": 9, "method": "tools/list"})
    assert alive(pid)
    assert client.cancel(7) == 202
    assert ended(pid)
    calling.join(PATIENCE)
    assert "cancelled" in answers[0]


def test_the_call_of_a_client_that_is_gone_is_killed(server):
    body = json.dumps({"jsonrpc": "2.0", **CALL})
    lines = [
        f"POST /mcp?token={TOKEN} HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"Content-Length: {len(body)}",
    ]
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall("\r\n".join([*lines, "", body]).encode())
        pid = started(server.pid_file)
        assert alive(pid)
    assert ended(pid)


@pytest.mark.parametrize("leave", ["close", "kill"])
def test_a_computation_ends_with_its_client_or_its_server(pid_file, leave):
    command = [sys.executable, *ENDLESS, "mcp"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env={**environment(), "ENDLESS_PID": str(pid_file)}, **pipes) as process:
        for message in ({"id": 0, "method": "initialize", "params": ABOUT}, CALL):
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            process.stdin.flush()
            if message is not CALL:
                process.stdout.readline()
        pid = started(pid_file)
        assert alive(pid)
        process.stdin.close() if leave == "close" else process.kill()
        assert ended(pid)
        process.wait(PATIENCE)


async def fails(client):
    return [
        await client.call_tool("list_models", {}),
        await client.call_tool("explain_rule", {"rule": "x"}),
        await client.call_tool("lookup_key", {"key": "sequence_len"}),
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of address space")
def test_memory_is_limited_and_a_bug_is_logged_without_control_characters(server):
    large, bug, after = talk(server.url(), fails)
    assert "needs more than 3.0 GiB of memory" in large.content[0].text
    assert bug.content[0].text == "Error executing tool explain_rule"
    assert not after.is_error
    said = server.said()
    assert b"ZeroDivisionError: \\x1b[31mx" in said
    assert b"\x1b" not in said


def test_a_process_that_is_stopped_leaves_no_pipe_open():
    from vramwise.mcp import worker_process

    waiting = [sys.executable, "-S", "-c", "input()"]
    process = subprocess.Popen(waiting, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdin.write(b"not flushed")
    worker_process._end(process)
    assert process.stdin.closed
    assert process.stdout.closed
