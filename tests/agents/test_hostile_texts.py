"""Texts that once broke something, or may: each tool answers or says what is wrong, and never fails itself."""

import json

from agent_sessions import ROOT, make_server, talk

from installed import needs

pytestmark = needs("mcp")

CORPUS = ROOT / "tests" / "fuzz" / "corpus"
ODD = (
    "",
    "\0",
    "- a\n- b\n",
    'base_model: "\ud800"\n',
    "base_model: x\nlearning_rate: .inf\noptimizer: .nan\n",
    "base_model: x\nadapter: 2001-01-01\ntokens: !!binary aGk=\n",
    "base_model: x\nmicro_batch_size: 99999999999999999999\nsequence_len: 99999999999\n",
    "&a [*a]",
    '{"base_model": "meta-llama/Llama-3.2-1B", "adapter": "lora", "lora_r": 8}',
    "base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 2147483647\nsequence_len: 2147483647\n",
)


def texts():
    files = sorted(path for path in CORPUS.rglob("*") if path.is_file() and path.stat().st_size < 20_000)
    configs = [path.read_bytes().decode("utf-8", "replace") for path in files if path.suffix in (".yml", ".yaml")]
    return [*ODD, *configs[:40]]


def test_every_tool_answers_or_says_what_is_wrong():
    async def conversation(client):
        for text in texts():
            for tool in ("check_config", "fix_config", "predict_memory"):
                yield tool, text, await client.call_tool(tool, {"config": text})
            yield "diagnose_failure", text, await client.call_tool("diagnose_failure", {"log": text, "config": text})

    async def everything(client):
        return [one async for one in conversation(client)]

    answers = talk(make_server(), everything)
    assert len(answers) > 40
    for tool, text, found in answers:
        said = found.content[0].text
        assert said != f"Error executing tool {tool}", text[:200]
        assert "bug in vramwise" not in said, text[:200]
        if not found.is_error:
            json.dumps(found.structured_content, allow_nan=False).encode("utf-8")
