"""The JSON contracts: docs/schemas/*.json describe what `--format json` really gives, every field of it."""

import json
import typing
from pathlib import Path

import jsonschema
import pytest

from fits import a_fit, already_best, nothing_fits
from vramwise.render.fit_json import fit_json
from vramwise.render.json_text import json_text
from vramwise.types import PLACES, SECTIONS
from vramwise.verbs.fit import FitReport

ROOT = Path(__file__).parent.parent
SCHEMAS = ROOT / "docs" / "schemas"
DATA = ROOT / "tests" / "data"
NAMES = ("new", "check", "predict", "fit", "diagnose", "replay", "rules", "gpus", "doctor")
FOREIGN = "site_name: a page\nplugins: [search]\n"
OOM_LOG = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB "
    "of which 1.10 GiB is free. Including non-PyTorch memory, this process has 22.50 GiB memory in use. Of the "
    "allocated memory 15.00 GiB is allocated by PyTorch, and 7.30 GiB is reserved by PyTorch but unallocated.\n"
)


def schema(name: str) -> dict[str, typing.Any]:
    return json.loads((SCHEMAS / f"{name}.json").read_text("utf-8"))


def undocumented(value, described, root, where="") -> list[str]:
    """Fields of a value that its schema does not name, at any depth."""
    described = _of(described, value, root)
    found = []
    if isinstance(value, dict):
        named, others = described.get("properties", {}), described.get("additionalProperties")
        for key, item in value.items():
            if key in named or isinstance(others, dict):
                found += undocumented(item, named.get(key, others), root, f"{where}.{key}")
            else:
                found.append(f"{where}.{key}")
    elif isinstance(value, list) and "items" in described:
        found = [one for item in value for one in undocumented(item, described["items"], root, f"{where}[]")]
    return sorted(set(found))


def _of(described, value, root):
    """The part of a schema that is about the value: references followed, null or not null decided."""
    if "anyOf" in described:
        described = described["anyOf"][0 if value is None else 1]
    if "$ref" in described:
        described = root["$defs"][described["$ref"].rpartition("/")[2]]
    return described


def hold(name: str, document) -> None:
    """The document fits its schema, and the schema names every field of it."""
    contract = schema(name)
    jsonschema.Draft202012Validator(contract).validate(document)
    # Free values inside: what a config holds under a key is the user's.
    loose = [field for field in undocumented(document, contract, contract) if ".edits[].value" not in field]
    assert loose == [], f"docs/schemas/{name}.json does not name these"


def schemas_in(node):
    if isinstance(node, dict):
        if "properties" in node:
            yield node
        for item in node.values():
            yield from schemas_in(item)
    elif isinstance(node, list):
        for item in node:
            yield from schemas_in(item)


@pytest.mark.parametrize("name", NAMES)
def test_the_schemas_are_schemas(name):
    contract = schema(name)
    jsonschema.Draft202012Validator.check_schema(contract)
    # Fields may be added: readers must not refuse what they do not know.
    assert all("additionalProperties" not in one for one in schemas_in(contract))


def test_every_schema_is_tested_and_linked():
    assert sorted(path.stem for path in SCHEMAS.glob("*.json")) == sorted(NAMES)
    pages = {name: "ci.md" if name in ("rules", "gpus", "doctor") else f"{name}.md" for name in NAMES}
    for name, page in pages.items():
        assert f"](schemas/{name}.json)" in (ROOT / "docs" / page).read_text("utf-8"), page


@pytest.mark.parametrize(
    ("name", "golden"), [("check", "check.golden.json"), ("diagnose", "diagnose/diagnose.golden.json")]
)
def test_the_golden_files_fit(name, golden):
    hold(name, json.loads((DATA / golden).read_text("utf-8")))


def test_every_value_of_a_run_is_described_as_it_is_typed():
    described = schema("check")["$defs"]["resolved"]["properties"]
    hints = {section: typing.get_type_hints(kind) for section, kind in SECTIONS.items()}
    for name, part in described.items():
        section, attribute = PLACES.get(name, ("", ""))
        if "enum" in part and section:
            assert set(part["enum"]) == set(_literals(hints[section][attribute])), name


def _literals(hint):
    if typing.get_origin(hint) is typing.Literal:
        yield from typing.get_args(hint)
    elif hint is type(None):
        yield None
    else:
        for part in typing.get_args(hint):
            yield from _literals(part)


@pytest.mark.usefixtures("brief_searches")
@pytest.mark.parametrize("card", ["12GB", "1GB"])
def test_new_keeps_its_contract(vramwise, card):
    words = ("new", "HuggingFaceTB/SmolLM2-135M", "--gpu", card, "--method", "lora", "--format", "json")
    hold("new", json.loads(vramwise(*words).stdout))


@pytest.mark.parametrize("example", ["mistakes.yml", "qlora.yml", "full.yml", "tiny/config.yml"])
def test_check_keeps_its_contract(vramwise, example):
    output = vramwise("check", ROOT / "examples" / example, "--gpu", "rtx-4090", "--format", "json").stdout
    hold("check", json.loads(output))


def test_check_keeps_its_contract_for_files_that_are_no_configs(vramwise, tmp_path):
    (tmp_path / "mkdocs.yml").write_text(FOREIGN)
    (tmp_path / "broken.yml").write_text("a: [1\n")
    (tmp_path / "wrong.yml").write_text("base_model: x\nmicro_batch_size: many\nsequence_len: 512\n")
    document = json.loads(vramwise("check", *sorted(tmp_path.iterdir()), "--format", "json").stdout)
    hold("check", document)
    files = {Path(file["path"]).name: file for file in document["files"]}
    assert files["mkdocs.yml"]["foreign"] == "mkdocs"
    assert files["mkdocs.yml"]["trainer"] is None
    assert files["broken.yml"]["error"]["message"]
    assert files["wrong.yml"]["error"]["line"] == 2


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--gpu", "rtx-4090", "--cards"),
        ("--gpu", "4GB"),
        ("--gpu", "rtx-4090", "--what-if", "axolotl==0.19.0", "--what-if", "eval_batch_size=8"),
        ("--engine", "transformers", "--memory-limit", "20GB"),
    ],
    ids=["bare", "cards", "does-not-fit", "what-if", "limit"],
)
def test_predict_keeps_its_contract(vramwise, words):
    output = vramwise("predict", ROOT / "examples" / "qlora.yml", *words, "--format", "json").stdout
    document = json.loads(output)
    hold("predict", document)
    assert ("what_if" in document) == ("--what-if" in words)
    assert ("cards" in document) == ("--cards" in words)


@pytest.mark.parametrize("made", [a_fit, already_best, nothing_fits], ids=lambda made: made.__name__)
def test_fit_keeps_its_contract(made):
    subject, fit = made()
    document = json.loads(json_text(fit_json(FitReport(fit=fit, command="vramwise fit config.yml"))))
    hold("fit", document)
    assert document["config"] == subject.document.path
    assert (document["best"] is None) == (document["verdict"]["kind"] == "does_not_fit")


@pytest.mark.usefixtures("brief_searches")
def test_diagnose_keeps_its_contract(vramwise, tmp_path):
    (tmp_path / "train.log").write_text(OOM_LOG)
    config = ("--config", ROOT / "examples" / "mistakes.yml", "--gpu", "rtx-4090")
    for words in ((), config):
        output = vramwise("diagnose", tmp_path / "train.log", *words, "--format", "json").stdout
        hold("diagnose", json.loads(output))
    quiet = vramwise("diagnose", "-", "--format", "json", stdin="all went well\n")
    hold("diagnose", json.loads(quiet.stdout))


@pytest.mark.parametrize("words", [(), ("--alloc-conf", "", "--memory-limit", "1GB")], ids=["own", "other"])
def test_replay_keeps_its_contract(vramwise, words):
    recording = DATA / "traces" / "full_gc_default.json.gz"
    hold("replay", json.loads(vramwise("replay", recording, *words, "--format", "json").stdout))


def test_rules_keeps_its_contract(vramwise):
    hold("rules", json.loads(vramwise("rules", "--format", "json").stdout))


def test_a_search_keeps_the_rules_contract(vramwise):
    document = json.loads(vramwise("rules", "--search", "oom after eval", "--format", "json").stdout)
    hold("rules", document)
    assert document["rules"][0]["id"] == document["found"][0]["name"] == "eval-peak"


def test_gpus_keeps_its_contract(vramwise):
    hold("gpus", json.loads(vramwise("gpus", "--format", "json").stdout))


def test_doctor_keeps_its_contract(vramwise):
    hold("doctor", json.loads(vramwise("doctor", "--format", "json").stdout))
