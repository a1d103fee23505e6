"""The server over standard streams, asked by the SDK's client as an agent asks it."""

import pytest
from agent_sessions import ROOT, over_stdio

from installed import Later, needs

exceptions = Later("mcp.shared.exceptions")

SMALL = (
    "base_model: HuggingFaceTB/SmolLM2-135M\nadapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\n"
    "sequence_len: 512\n"
)
ASKED = {"config": SMALL, "gpu": "rtx-4090"}


@needs("mcp")
def test_tools_are_listed_called_and_refused():
    async def conversation(client):
        tools = [tool.name for tool in (await client.list_tools()).tools]
        answered = await client.call_tool("predict_memory", ASKED)
        refused = await client.call_tool("check_config", {"config": SMALL, "gpu": "rtx-9999"})
        return tools, answered, refused

    tools, answered, refused = over_stdio(conversation)
    assert len(tools) >= 9
    assert answered.structured_content["fits"] is True
    assert refused.is_error
    assert "list_gpus" in refused.content[0].text


@needs("mcp")
def test_a_path_is_a_text_like_any_other():
    """Nothing of this machine is read, whatever a text or an address names."""

    async def conversation(client):
        named = await client.call_tool("check_config", {"config": str(ROOT / "examples" / "qlora.yml")})
        nowhere = await client.call_tool("check_config", {"config": "/no/such/folder/qlora.yml"})
        log = await client.call_tool("diagnose_failure", {"log": str(ROOT / "examples" / "picture.log")})
        with pytest.raises(exceptions.MCPError):
            await client.read_resource("file:///etc/hostname")
        return named, nowhere, log

    named, nowhere, log = over_stdio(conversation)
    for refused in (named, nowhere):  # whether the file exists is not told either
        assert "not the text of a config. Next: read that file" in refused.content[0].text
    assert log.structured_content["failed"] is False


def test_without_the_extra_it_is_one_sentence(vramwise, monkeypatch):
    monkeypatch.setattr("vramwise.cli.mcp.find_spec", lambda name: None)
    refused = vramwise("mcp")
    assert refused.exit_code == 2
    assert "pip install 'vramwise[mcp]'" in str(refused.exception)


@pytest.mark.parametrize("seconds", ["0", "nan"])
def test_a_time_limit_that_is_none_is_refused(vramwise, seconds):
    refused = vramwise("mcp", "--time-limit", seconds)
    assert refused.exit_code == 2
    assert "--time-limit" in refused.stderr
