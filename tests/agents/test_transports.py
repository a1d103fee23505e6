"""The server over both transports, asked by the SDK's client; and who may not ask."""

import contextlib
import http.client
import json
import socket

import pytest
from agent_sessions import ROOT, TOKEN, http_server, over_stdio, talk

from installed import PATIENCE, Later, needs

pytestmark = needs("mcp")
exceptions = Later("mcp.shared.exceptions")

SMALL = (
    "base_model: HuggingFaceTB/SmolLM2-135M\nadapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\n"
    "sequence_len: 512\n"
)
ASKED = {"config": SMALL, "gpu": "rtx-4090"}


async def conversation(client):
    tools = [tool.name for tool in (await client.list_tools()).tools]
    answered = await client.call_tool("predict_memory", ASKED)
    refused = await client.call_tool("check_config", {"config": SMALL, "gpu": "rtx-9999"})
    return tools, answered, refused


def hold(tools, answered, refused):
    assert len(tools) >= 9
    assert answered.structured_content["fits"] is True
    assert refused.is_error
    assert "list_gpus" in refused.content[0].text


def test_over_standard_streams():
    hold(*over_stdio(conversation))


@pytest.fixture(scope="module")
def server():
    """A server with clients that began a request and never go on: they hold up no other, nor its end."""
    with contextlib.ExitStack() as clients, http_server() as server:
        start = f"POST /mcp?token={TOKEN} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: 9\r\n\r\n{{"
        for _ in range(100):
            silent = clients.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            silent.sendall(start.encode())
        yield server


@pytest.fixture(scope="module")
def port(server):
    return server.port


def test_over_http(server):
    hold(*talk(server.url(), conversation))


def posted(port, *, content="application/json", path=f"/mcp?token={TOKEN}", body=None, **headers):
    """The status of a request as a browser or a script could send it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"} if body is None else body
    sent = {"Content-Type": content, "Accept": "application/json, text/event-stream", **headers}
    connection.request("POST", path, body=json.dumps(message), headers=sent)
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1:1"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_others_hosts_and_origins_are_refused(port, headers, status):
    assert posted(port, **headers) == status


def test_a_form_of_a_web_page_is_no_request(port):
    assert posted(port, content="text/plain") == 400
    assert posted(port, path=f"/?token={TOKEN}") == 404


def test_a_request_beyond_all_measure_is_refused(port):
    assert posted(port, body={"padding": "x" * (5 * 1024 * 1024)}) == 413


def test_a_path_is_a_text_like_any_other(server):
    """Over HTTP nothing of this machine is read, whatever a text or an address names."""

    async def asked(client):
        named = await client.call_tool("check_config", {"config": str(ROOT / "examples" / "qlora.yml")})
        nowhere = await client.call_tool("check_config", {"config": "/no/such/folder/qlora.yml"})
        log = await client.call_tool("diagnose_failure", {"log": str(ROOT / "examples" / "picture.log")})
        with pytest.raises(exceptions.MCPError):
            await client.read_resource("file:///etc/hostname")
        return named, nowhere, log

    named, nowhere, log = talk(server.url(), asked)
    for refused in (named, nowhere):  # whether the file exists is not told either
        assert "not the text of a config. Next: read that file" in refused.content[0].text
    assert log.structured_content["failed"] is False


def test_headers_beyond_all_measure_and_no_http_are_refused(port):
    for sent in (b"POST /mcp HTTP/1.1\r\nX: " + b"a" * 200_000 + b"\r\n\r\n", b"\x16\x03\x01\0\0garbage\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
            client.sendall(sent)
            assert client.recv(1000).startswith(b"HTTP/1.1 400")
    assert posted(port) == 200


def test_a_port_that_is_taken_is_one_sentence(port, vramwise):
    refused = vramwise("mcp", "--http", "--port", port)
    assert refused.exit_code == 2
    assert "cannot use port" in str(refused.exception)
    assert "--port" in str(refused.exception)


def test_it_listens_on_loopback_alone():
    from vramwise.mcp.http import security

    allowed = security(8765)
    assert allowed.enable_dns_rebinding_protection
    assert {host.rpartition(":")[0] for host in allowed.allowed_hosts} == {"127.0.0.1", "localhost", "[::1]"}
    assert allowed.allowed_origins == [f"http://{host}" for host in allowed.allowed_hosts]
