"""Small configs with odd keys and values, drawn by chance: whether the trainer's own parser refuses them, and whether we do.

Recorded by scripts/mutated_verdicts.py with TRL 1.16.0 and LLaMA-Factory 0.9.5. What passes the parser and cannot work
is told by rules that say so (`beyond_trainer`).
"""

import json
from pathlib import Path

import pytest

from opened import make_target
from vramwise import rules
from vramwise.documents.document import parse_document
from vramwise.opening.subject import on_target
from vramwise.trainers.arguments.unknown_keys import other_words
from vramwise.trainers.registry import trainer_named
from vramwise.types import SETTINGS, Severity
from vramwise.verbs.check import Policy, check_subject

DATA = Path(__file__).parents[1] / "data"
VERSIONS = {"trl": "1.16.0", "llamafactory": "0.9.5"}
BASES = {
    "trl": {"model_name_or_path": "Qwen/Qwen3-0.6B", "dataset_name": "a/b", "max_steps": 100, "use_peft": True},
    "llamafactory": {
        "model_name_or_path": "Qwen/Qwen3-0.6B",
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "lora",
        "dataset": "identity",
        "template": "qwen3",
    },
}
BEYOND = {rule.id for rule in rules() if rule.beyond_trainer}
# Switches of `accelerate launch`: it takes a value behind one for the script's name, and fails to find that later on.
SWITCHES = {"cpu", "multi_gpu", "tpu", "quiet", "same_network"}


def cases(trainer):
    lines = (DATA / f"{trainer}-{VERSIONS[trainer]}-mutated.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [one for one in found if not SWITCHES & one["set"].keys()]


def errors(trainer, case):
    values = {key: value for key, value in {**BASES[trainer], **case["set"]}.items() if key not in case["drop"]}
    document = parse_document("config.yaml", json.dumps(values).encode())
    named = trainer_named(f"trl:{case['kind']}" if trainer == "trl" else trainer)
    target = make_target(trainer=trainer, gpu="h100", versions=(f"{trainer}=={VERSIONS[trainer]}",))
    findings = check_subject(on_target(document, named, target), Policy(predicts=False)).findings
    return {found.rule for found in findings if found.severity is Severity.ERROR}


@pytest.mark.parametrize("trainer", VERSIONS)
def test_we_refuse_what_the_parser_refuses_and_nothing_else(trainer):
    every = cases(trainer)
    assert len(every) > 200
    differ = []
    for case in every:
        found = errors(trainer, case)
        if (not found) if case["refused"] else (found - BEYOND):
            differ.append((case, found))
    assert differ == []


def test_other_trainers_words_are_told_by_the_name_they_have_here():
    text = "model_name_or_path: a\ndataset_name: b\nuse_peft: true\nmax_steps: 1\ncutoff_len: 1\nmicro_batch_size: 1\n"
    document = parse_document("config.yaml", text.encode())
    report = check_subject(
        on_target(document, trainer_named("trl"), make_target(trainer="trl")), Policy(predicts=False)
    )
    told = {found.key: found.message for found in report.findings if found.rule == "unknown-argument"}
    assert "max_length" in told["cutoff_len"]
    assert "removed in TRL 0.22" in told["micro_batch_size"]


def test_the_words_lead_to_fields_of_a_run():
    assert set(other_words().values()) <= set(SETTINGS)
