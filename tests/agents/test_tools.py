"""The tools as an agent sees them, through the SDK's own client."""

import json

import pytest
from agent_sessions import ROOT, ask, make_server, talk

import vramwise as package
from installed import Later, needs

pytestmark = needs("mcp")
exceptions = Later("mcp.shared.exceptions")

MISTAKES = (ROOT / "examples" / "mistakes.yml").read_text("utf-8")
SMALL = "base_model: HuggingFaceTB/SmolLM2-135M\nsequence_len: 2048\nmicro_batch_size: 8\nbf16: true\n"
QLORA = (ROOT / "examples" / "qlora.yml").read_text("utf-8")
TOOLS = {
    *("new_config", "check_config", "fix_config", "predict_memory", "fit_config", "diagnose_failure"),
    *("explain_rule", "search_practice", "lookup_key", "list_gpus", "list_models"),
}


def result(tool, **arguments):
    found = ask(tool, arguments)
    assert not found.is_error, found.content[0].text
    return found.structured_content


def refusal(tool, **arguments):
    found = ask(tool, arguments)
    assert found.is_error
    return found.content[0].text


def test_every_tool_is_described_typed_and_known_to_be_harmless():
    tools = talk(make_server(), lambda client: client.list_tools()).tools
    assert {tool.name for tool in tools} >= TOOLS
    for tool in tools:
        hints = tool.annotations
        assert hints.title == tool.title
        assert (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint) == (True, False, True)
        assert hints.open_world_hint is False
        assert len(tool.description) > 60
        assert tool.output_schema["type"] == "object"
        for name, described in tool.input_schema.get("properties", {}).items():
            assert "description" in described or name == "limit", f"{tool.name}.{name}"
            assert "path" not in name


def test_a_server_that_may_ask_the_hub_says_so():
    tools = talk(make_server(online=True), lambda client: client.list_tools()).tools
    assert {tool.name for tool in tools if tool.annotations.open_world_hint} == {"predict_memory"}


def test_check_says_what_the_command_says():
    found = result("check_config", config=MISTAKES)
    report = package.check(MISTAKES)[0]
    assert [one["rule"] for one in found["findings"]] == [one.rule for one in report.findings]
    assert found["clean"] is False
    assert found["fits"] is None
    assert "pass gpu" in found["next"]


def test_check_and_predict_take_a_notebook():
    code = (ROOT / "examples" / "train_qlora.py").read_text("utf-8")
    cell = {"cell_type": "code", "source": code, "outputs": [], "metadata": {}}
    text = json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]})
    assert result("check_config", config=text, gpu="rtx-4090")["fits"] is True
    assert result("predict_memory", config=text, gpu="rtx-4090")["prediction"]["fits"] is True


def test_fix_gives_the_whole_text_and_what_remains():
    found = result("fix_config", config=MISTAKES, unsafe=True)
    report = package.fix(MISTAKES, unsafe=True)[0]
    assert found["config"] == report.after.text
    assert found["diff"].startswith("---")
    assert [one["rule"] for one in found["applied"]] == [one.rule for one in report.applied]
    assert found["clean"]


def test_predict_says_what_the_command_says(vramwise, tmp_path):
    (tmp_path / "small.yml").write_text(SMALL)
    found = result("predict_memory", config=SMALL, gpu="rtx-4090", changes=["micro_batch_size=4"])
    words = ("--gpu", "rtx-4090", "--what-if", "micro_batch_size=4", "--format", "json")
    shown = json.loads(vramwise("predict", tmp_path / "small.yml", *words).stdout)
    assert found["prediction"]["peak_reserved_bytes"] == shown["peak_reserved_bytes"]
    assert found["what_if"]["peak_reserved_bytes"] == shown["what_if"]["peak_reserved_bytes"]
    assert found["summary"] == shown["what_if"]["verdict"]["text"]


@pytest.mark.parametrize(
    ("trainer", "key"), [("", "base_model"), ("trl", "model_name_or_path"), ("llamafactory", "finetuning_type")]
)
def test_predict_takes_a_run_in_a_few_words(trainer, key):
    said = {"model": "HuggingFaceTB/SmolLM2-135M", "gpu": "rtx-4090", "trainer": trainer}
    found = result("predict_memory", **said, run={"adapter": "qlora", "sequence_len": 1024, "micro_batch": 2})
    assert key in found["config"]
    again = result("predict_memory", config=found["config"], gpu="rtx-4090")
    assert again["prediction"]["peak_reserved_bytes"] == found["prediction"]["peak_reserved_bytes"]
    assert again["config"] == ""


def test_the_words_of_a_run_are_those_of_every_door():
    from vramwise.mcp.verbs import Wished
    from vramwise.trainers.wishes import Wishes

    assert set(Wished.model_fields) == set(Wishes.__dataclass_fields__) - {"model"}


def test_fit_gives_the_text_that_fits():
    found = result("fit_config", config=SMALL, gpu="6GB", keep=["sequence_len"])
    assert not found["original"]["fits"]
    assert "diff" not in found["original"]
    assert found["fits"]
    assert {edit["key"] for edit in found["best"]["edits"]} >= {"micro_batch_size"}
    assert found["diff"].startswith("---")
    assert "sequence_len: 2048\n" in found["config"]
    assert package.predict(found["config"], gpu="6GB").fits


@pytest.mark.nightly
def test_fit_gives_the_largest_value_of_a_key():
    """The same as `fit --max`, in the words of the config's own trainer."""
    text = "model_name_or_path: HuggingFaceTB/SmolLM2-135M\ndataset_name: a/b\nuse_peft: true\nmax_length: 2048\n"
    key = "per_device_train_batch_size"
    found = result("fit_config", config=text, gpu="12GB", maximise=key)
    native = package.fit(text, gpu="12GB", text_alone=True, maximise=key, online=False)
    assert found["config"] == native.best.document.text
    assert f"The largest {key} that fits: " in found["summary"]
    assert key in {edit["key"] for edit in found["best"]["edits"]}
    nothing = result("fit_config", config=SMALL, gpu="1GB", maximise="micro_batch_size")
    assert not nothing["fits"]
    assert "without maximise" in nothing["next"]


def test_diagnose_reads_a_log_and_weighs_the_config():
    log = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.6 GiB"
    )
    alone = result("diagnose_failure", log=log)
    assert alone["failed"]
    assert "config" in alone["next"]
    weighed = result("diagnose_failure", log=log, config=SMALL, gpu="rtx-4090")
    assert weighed["diagnosis"]["ghost_run"]
    assert not result("diagnose_failure", log="all went well\n")["failed"]


def test_knowledge_is_found():
    assert result("search_practice", question="oom after eval")["found"][0]["name"] == "eval-peak"
    assert result("explain_rule", rule="eval-peak")["page"].startswith("# eval-peak\n")
    assert result("lookup_key", key="sequence_len")["keys"][0]["versions"][0]["default"] == 512
    assert result("list_gpus", words=["4090"])["items"][0]["name"] == "RTX 4090"
    assert "Qwen/Qwen3-8B" in result("list_models", words=["qwen3", "8b"])["items"]


@pytest.mark.parametrize(
    ("tool", "arguments", "said", "then"),
    [
        ("check_config", {"config": QLORA, "gpu": "rtx-9999"}, "unknown GPU", "call list_gpus"),
        ("check_config", {"config": "a: [1"}, "never closed", "fix the text at that position"),
        ("check_config", {"config": "site_name: x\nplugins: [search]\n"}, "MkDocs", "trainer set to one of"),
        ("check_config", {"config": QLORA, "trainer": "nobody"}, "unknown trainer 'nobody'", "leave trainer empty"),
        ("check_config", {"config": QLORA, "versions": ["torch"]}, "is not a version", "torch==2.13.0"),
        ("predict_memory", {"config": "base_model: a/b\nadapter: lora\n"}, "unknown", "call list_models"),
        ("predict_memory", {"config": SMALL, "changes": ["no_such=1"]}, "knows no key", "lookup_key"),
        ("predict_memory", {}, "name a model", "pass config, or model"),
        ("predict_memory", {"config": SMALL, "run": {"rank": 4}}, "cannot be combined", "pass only one"),
        ("predict_memory", {"model": "m", "run": {"rank": 4}}, "rank needs an adapter", "pass config, or model"),
        ("fit_config", {"config": SMALL, "gpu": "24GB", "allow": ["magic"]}, "magic", "correct gpu, allow, keep"),
        (
            "fit_config",
            {"config": SMALL, "gpu": "24GB", "maximise": "x"},
            "maximise x: choose one of micro",
            "or maximise",
        ),
        ("fit_config", {"config": "base_model: a/b\nadapter: lora\n", "gpu": "24GB"}, "unknown", "call list_models"),
        ("explain_rule", {"rule": "eval-pek"}, "did you mean eval-peak", "search_practice"),
        ("lookup_key", {"key": "seqence_len"}, "did you mean sequence_len", "search_practice"),
        ("search_practice", {"question": "xyzzy"}, "nothing found", "other or fewer words"),
        ("diagnose_failure", {"log": "x", "config": "a: [1"}, "never closed", "fix the text at that position"),
    ],
)
def test_a_mistake_says_the_next_call(tool, arguments, said, then):
    text = refusal(tool, **arguments)
    assert said in text
    assert then in text.partition("Next: ")[2]


def test_no_file_that_a_text_names_is_read(tmp_path, monkeypatch):
    """Not the model's folder, the DeepSpeed file, nor the project's settings around the server."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.vramwise]\ngpu = "no such card"\n')
    secret = ROOT / "examples/tiny/model"
    (tmp_path / "zero.json").write_text('{"zero_optimization": {"stage": 3}}')
    text = f"base_model: {secret}\nadapter: lora\ndeepspeed: zero.json\nsequence_len: 512\n"
    found = result("check_config", config=text, gpu="rtx-4090", gpus=2)
    assert "is unknown" in found["not_predicted"]
    assert "deepspeed-file-missing" in {one["rule"] for one in found["findings"]}


def test_rules_and_pages_are_resources():
    server = make_server()
    templates = talk(server, lambda client: client.list_resource_templates()).resource_templates
    assert [one.uri_template for one in templates] == ["vramwise://rules/{rule}", "vramwise://pages/{page}"]
    page = talk(make_server(), lambda client: client.read_resource("vramwise://rules/eval-peak")).contents[0]
    assert page.mime_type == "text/markdown"
    assert page.text == (ROOT / "docs" / "rules" / "eval-peak.md").read_text("utf-8")
    fix = talk(make_server(), lambda client: client.read_resource("vramwise://pages/fix")).contents[0]
    assert fix.text == (ROOT / "docs" / "fix.md").read_text("utf-8")
    talk(make_server(), unknown_resources_are_refused)
    every = talk(make_server(), lambda client: client.read_resource("vramwise://rules")).contents[0].text
    assert every.count("vramwise://rules/") == len(package.rules())


async def unknown_resources_are_refused(client):
    for unknown in ("vramwise://rules/nothing", "vramwise://pages/nothing", "vramwise://pages/..%2FREADME"):
        with pytest.raises(exceptions.MCPError):
            await client.read_resource(unknown)


def test_an_agent_takes_the_mistakes_to_a_clean_file_that_fits():
    """Given the tools alone and following `next`, in at most four calls."""
    calls = []

    def call(tool, **arguments):
        calls.append(tool)
        return result(tool, **arguments)

    config = MISTAKES
    found = call("check_config", config=config, gpu="rtx-4090")
    assert found["fits"] is False
    assert "call fix_config (unsafe=true" in found["next"]
    while found["next"] and len(calls) < 4:
        tool = next(name for name in TOOLS if f"call {name}" in found["next"])
        wishes = {"unsafe": True} if "unsafe=true" in found["next"] else {}
        found = call(tool, config=config, gpu="rtx-4090", **wishes)
        config = found.get("config", config)
    found = call("check_config", config=config, gpu="rtx-4090")
    assert len(calls) <= 4
    assert found["clean"]
    assert found["fits"]
    # What the tools say, the command line says of the file.
    assert package.check(config)[0].failing == 0
