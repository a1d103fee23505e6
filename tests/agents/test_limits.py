"""A call has a limit of time and memory, and ends when its client cancels it or is gone.

Each test waits for what must happen, however long a busy machine takes.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("mcp")

import anyio
from agent_sessions import environment, over_stdio

ENDLESS = (str(Path(__file__).with_name("endless_server.py")),)
ABOUT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
CALL = {"id": 7, "method": "tools/call", "params": {"name": "list_gpus", "arguments": {}}}
PATIENCE = 120  # seconds until a test gives up: what it waits for takes one


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


def endless(pid_file, conversation, *words, **streams):
    return over_stdio(conversation, *words, start=ENDLESS, ENDLESS_PID=str(pid_file), **streams)


def test_a_call_past_the_time_limit_is_stopped(pid_file):
    late = endless(pid_file, computes, "--time-limit", "1")
    assert late.is_error
    assert "took longer than 1 s and was stopped" in late.content[0].text
    assert "--time-limit" in late.content[0].text
    assert ended(started(pid_file))


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


def test_a_cancelled_call_is_killed(pid_file):
    assert not endless(pid_file, cancels(pid_file)).is_error


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
def test_memory_is_limited_and_a_bug_is_logged_without_control_characters(pid_file, tmp_path):
    with (tmp_path / "log").open("w") as log:
        large, bug, after = endless(pid_file, fails, errlog=log)
    assert "needs more than 3.0 GiB of memory" in large.content[0].text
    assert bug.content[0].text == "Error executing tool explain_rule"
    assert not after.is_error
    said = (tmp_path / "log").read_bytes()
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
