"""Which targets PEFT is given for `lora_target_linear`: Axolotl's names of linear modules, or PEFT's own word."""

from opened import make_target, resolve
from vramwise.documents.document import parse_document
from vramwise.models.known import find_model
from vramwise.models.lora_targets import ALL_LINEAR, lora_targets, wanted_targets
from vramwise.trainers.transformers.trainer import as_plain_trainer

TEXT = "base_model: {}\nadapter: qlora\nload_in_4bit: true\nlora_target_linear: true\n"


def opened(name, more=""):
    document = parse_document("config.yml", (TEXT.format(name) + more).encode())
    return resolve(document, make_target(env={}, look_around=False)), find_model(name)


def test_experts_are_no_linear_modules_to_axolotl():
    run, model = opened("Qwen/Qwen3-30B-A3B")
    assert set(wanted_targets(run, model)) == {"q_proj", "k_proj", "v_proj", "o_proj"}
    assert not any(target.experts > 1 for target in lora_targets(model, wanted_targets(run, model)))


def test_peft_itself_reaches_them():
    run, model = opened("Qwen/Qwen3-30B-A3B")
    run = as_plain_trainer(run)
    assert wanted_targets(run, model) == ALL_LINEAR
    assert any(target.experts > 1 for target in lora_targets(model, ALL_LINEAR))


def test_named_targets_are_added_to_them():
    run, model = opened("Qwen/Qwen3-30B-A3B", "lora_target_modules: [gate_proj]\n")
    assert "gate_proj" in wanted_targets(run, model)
    run = run.changed(lora_target_linear=False)
    assert wanted_targets(run, model) == ("gate_proj",)
