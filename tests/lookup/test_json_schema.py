"""The JSON schema of a trainer's keys: it is one, it takes what the trainer takes, and refuses what it refuses."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from vramwise.lookup.json_schema import json_schema
from vramwise.trainers.registry import trainer_named

ROOT = Path(__file__).parents[2]
AXOLOTL = trainer_named("axolotl")


@pytest.fixture(scope="module")
def schema():
    return json_schema(AXOLOTL, "0.21.0")


@pytest.fixture(scope="module")
def newest(schema):
    return jsonschema.Draft7Validator(schema)


def errors(validator, values):
    return [error.message for error in validator.iter_errors(values)]


def test_it_is_a_schema(schema):
    jsonschema.Draft7Validator.check_schema(schema)


@pytest.mark.parametrize("name", ["mistakes.yml", "qlora.yml", "full.yml", "tiny/config.yml"])
def test_the_examples_are_taken(newest, name):
    assert errors(newest, yaml.safe_load((ROOT / "examples" / name).read_text("utf-8"))) == []


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ({"micro_batch_size": "many"}, "micro_batch_size"),
        ({"sequence_length": 4096}, "sequence_length"),
        ({"fp8_config": {"no_such": 1}}, "no_such"),
        ({"datasets": []}, "[]"),
        ({"activation_offloading": "somewhere"}, "somewhere"),
    ],
)
def test_what_the_trainer_refuses_is_marked(newest, values, wrong):
    found = list(newest.iter_errors({"base_model": "x", **values}))
    assert len(found) == 1
    assert wrong in f"{list(found[0].path)} {found[0].message}"


def test_it_agrees_with_the_types_that_check_reads(newest):
    """What the schema of `check` takes and refuses by type, one key at a time, the JSON schema does too."""
    from vramwise.trainers.axolotl.schema import schema_of_version

    known = schema_of_version("0.21.0")
    values = (True, 3, -1, 0.5, "words", [], {}, [1], ["a"], None)
    strict = 0
    for key in sorted(known.keys() - known.plugin_keys().keys()):
        for value in values:
            refused = bool(errors(newest, {key: value}))
            if known.check_type(key, value) is not None:
                strict += refused
                assert refused, (key, value)
    assert strict > 1000


def test_a_plugin_of_ones_own_may_bring_keys(newest):
    assert errors(newest, {"base_model": "x", "my_key": 1, "plugins": ["my.Plugin"]}) == []
    own = ["axolotl.integrations.liger.LigerPlugin"]
    assert len(errors(newest, {"base_model": "x", "my_key": 1, "plugins": own})) == 1


def test_hover_tells_memory_default_and_what_is_on_its_way_out(schema):
    keys = schema["properties"]
    assert keys["sequence_len"]["default"] == 512
    assert "Memory: Activations and logits grow" in keys["sequence_len"]["description"]
    assert "adamw_torch_8bit" in keys["optimizer"]["anyOf"][0]["enum"]
    assert keys["unsloth_lora_mlp"]["deprecated"] is True
    assert "lora_mlp_kernel" in keys["unsloth_lora_mlp"]["deprecationMessage"]
    assert "LigerPlugin" in keys["liger_rope"]["description"]
    # What still works is told on hover, and marked as no error.
    assert keys["flash_attention"]["deprecated"] is True
    assert "deprecationMessage" not in keys["flash_attention"]


def test_versions_differ(schema):
    every = {version: json_schema(AXOLOTL, version) for version in AXOLOTL.releases()}
    assert every["0.21.0"] == schema
    assert "eval_on_start" in schema["properties"]
    assert "eval_on_start" not in every["0.20.0"]["properties"]


def test_the_command_writes_it(vramwise):
    document = json.loads(vramwise("schema", "axolotl", "--with", "axolotl==0.19").stdout)
    assert document["title"] == "Axolotl 0.19.0"
    refused = vramwise("schema", "nobody")
    assert refused.exit_code == 2
