"""`mcp add`: a client's file gains our entry and loses nothing. `mcp doctor`: the server is asked as a client would."""

import json
import sys
import tomllib

import pytest

from installed import need

ENTRY = {"command": sys.executable, "args": ["-m", "vramwise", "mcp"]}
FILES = {
    "claude": (".mcp.json", "mcpServers"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "codex": (".codex/config.toml", "mcp_servers"),
    "vscode": (".vscode/mcp.json", "servers"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def content(path):
    text = path.read_text("utf-8")
    return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)


@pytest.mark.parametrize("client", FILES)
def test_a_new_file_holds_the_entry_and_a_second_time_changes_nothing(vramwise, folder, client):
    name, table = FILES[client]
    assert vramwise("mcp", "add", client).exit_code == 0
    entry = content(folder / name)[table]["vramwise"]
    assert ENTRY.items() <= entry.items()
    assert ("type" in entry) == (client in ("claude", "vscode"))
    before = (folder / name).read_bytes()
    again = vramwise("mcp", "add", client)
    assert again.exit_code == 0
    assert "already has it" in again.stdout
    assert (folder / name).read_bytes() == before


URL = "http://127.0.0.1:9000/mcp"
HEADERS = {
    "claude": {"Authorization": "Bearer ${VRAMWISE_MCP_TOKEN}"},
    "cursor": {"Authorization": "Bearer ${env:VRAMWISE_MCP_TOKEN}"},
    "vscode": {"Authorization": "Bearer ${env:VRAMWISE_MCP_TOKEN}"},
}


@pytest.mark.parametrize("client", FILES)
def test_an_entry_for_http_names_the_variable_of_the_token_and_never_the_token(vramwise, folder, monkeypatch, client):
    monkeypatch.setenv("VRAMWISE_MCP_TOKEN", "secret")
    name, table = FILES[client]
    done = vramwise("mcp", "add", client, "--http", "--port", "9000")
    assert done.exit_code == 0
    assert "set VRAMWISE_MCP_TOKEN to the same token" in done.stderr
    entry = content(folder / name)[table]["vramwise"]
    assert entry.pop("type", None) == ("http" if client in ("claude", "vscode") else None)
    if client == "codex":
        assert entry == {"url": URL, "bearer_token_env_var": "VRAMWISE_MCP_TOKEN"}
    else:
        assert entry == {"url": URL, "headers": HEADERS[client]}
    assert "secret" not in (folder / name).read_text("utf-8")
    # The entry that starts the server is another: it is not written over this one.
    assert vramwise("mcp", "add", client).exit_code == 2


@pytest.mark.parametrize("client", ["claude", "cursor", "vscode"])
def test_json_keeps_what_is_there(vramwise, folder, client):
    name, table = FILES[client]
    there = {"theme": "é", table: {"other": {"command": "x", "env": {"A": "1"}}}, "numbers": [1.5, 10**20, None]}
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(there, indent="\t"), encoding="utf-8")
    assert vramwise("mcp", "add", client).exit_code == 0
    after = content(folder / name)
    assert after[table].pop("vramwise")["command"] == sys.executable
    assert after == there
    assert '\n\t"theme": "é"' in (folder / name).read_text("utf-8")


def test_toml_keeps_every_character(vramwise, folder):
    there = '# mine\nmodel = "o"   # best\r\n\r\n[mcp_servers.other]\r\ncommand = "x"'
    path = folder / ".codex" / "config.toml"
    path.parent.mkdir()
    path.write_bytes(there.encode())
    assert vramwise("mcp", "add", "codex").exit_code == 0
    after = path.read_bytes().decode()
    assert after.startswith(there)
    assert set(tomllib.loads(after)["mcp_servers"]) == {"other", "vramwise"}


@pytest.mark.parametrize(
    ("client", "text", "said"),
    [
        ("claude", '{"mcpServers": {', "is not JSON"),
        ("vscode", '{\n  // mine\n  "servers": {}\n}', "is not JSON"),
        ("claude", '{"a": 1, "a": 2}', "duplicate key"),
        ("cursor", '{"mcpServers": []}', "should be an object"),
        ("cursor", "[]", "should be an object"),
        ("codex", "a = [", "is not TOML"),
        ("codex", 'mcp_servers = "x"', "should be a table"),
        ("codex", 'mcp_servers = {other = {command = "x"}}', "is not extensible TOML"),
        ("claude", '{"mcpServers": {"vramwise": {"command": "mine"}}}', "already has a different server"),
        ("codex", '[mcp_servers.vramwise]\ncommand = "mine"\n', "already has a different server"),
    ],
)
def test_what_cannot_be_read_or_is_anothers_stays(vramwise, folder, client, text, said):
    path = folder / FILES[client][0]
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    refused = vramwise("mcp", "add", client)
    assert refused.exit_code == 2
    assert said in str(refused.exception)
    assert "nothing was changed" in str(refused.exception)
    assert path.read_text("utf-8") == text


def test_the_users_own_file(vramwise, folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder / "home"))
    assert vramwise("mcp", "add", "claude", "--user").exit_code == 0
    assert "vramwise" in content(folder / "home" / ".claude.json")["mcpServers"]
    assert vramwise("mcp", "add", "vscode", "--user").exit_code == 2


def test_without_the_extra_it_is_one_sentence(vramwise, monkeypatch):
    monkeypatch.setattr("vramwise.cli.mcp._has_sdk", lambda: False)
    for words in (("mcp",), ("mcp", "doctor")):
        refused = vramwise(*words)
        assert refused.exit_code == 2
        assert "pip install 'vramwise[mcp]'" in str(refused.exception)


def test_the_doctor_asks_the_server(vramwise, monkeypatch):
    need("mcp")
    import mcp.client.stdio  # noqa: F401 - it keeps the stderr of the moment it is imported: not that of a CliRunner
    from agent_sessions import SOURCE

    monkeypatch.setenv("PYTHONPATH", SOURCE)
    shown = vramwise("mcp", "doctor")
    assert shown.exit_code == 0
    assert "check_config" in shown.stdout
    monkeypatch.setattr("vramwise.mcp.doctor.server_command", lambda: [sys.executable, "-c", "raise SystemExit(3)"])
    failed = vramwise("mcp", "doctor")
    assert failed.exit_code == 2
    assert "the server does not answer" in str(failed.exception)
