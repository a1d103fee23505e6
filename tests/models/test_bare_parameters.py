"""Adapters on bare parameters: PEFT's target_parameters, by each trainer's spelling, counted as what trains."""

import pytest

from opened import make_target, subject_of_text
from vramwise.models.lora_targets import lora_targets
from vramwise.models.parameters import parameters
from vramwise.opening.options import Options, Text
from vramwise.opening.subject import open_subject
from vramwise.variants.prediction import predict_run

EXPERTS = ("mlp.experts.gate_up_proj", "mlp.experts.down_proj")
AXOLOTL = (
    "base_model: Qwen/Qwen3-30B-A3B\nadapter: lora\nlora_r: 16\nlora_alpha: 16\nlora_target_modules: [q_proj]\n"
    "sequence_len: 512\noptimizer: adamw_torch\nbf16: true\n"
)
SCRIPT = """
import torch
from trl import SFTTrainer, SFTConfig
from peft import LoraConfig

args = SFTConfig("out", max_length=512, per_device_train_batch_size=1, model_init_kwargs={"dtype": torch.bfloat16})
lora = LoraConfig(r=16, target_modules=["q_proj"]MORE)
SFTTrainer(model="Qwen/Qwen3-30B-A3B", args=args, peft_config=lora).train()
"""


def opened(trainer, *, bare):
    if trainer == "script":
        more = f", target_parameters={list(EXPERTS)}" if bare else ""
        return open_subject(Text(SCRIPT.replace("MORE", more)), Options(gpu="h200"))
    key = f"lora_target_parameters: [{', '.join(EXPERTS)}]\n" if bare else ""
    text = (
        AXOLOTL
        if trainer == "axolotl"
        else AXOLOTL.replace("base_model", "model_name_or_path")
        .replace("adapter: lora", "use_peft: true\ndtype: bfloat16\ndataset_name: d/d")
        .replace("sequence_len", "max_length")
        .replace("optimizer:", "optim:")
    )
    return subject_of_text(text + key, make_target(gpu="h200", trainer=trainer), trainer=trainer)


@pytest.mark.parametrize("trainer", ["axolotl", "trl", "script"])
def test_adapters_on_experts_are_counted(trainer):
    """Weights and two states of each matrix, in fp32: A and B have a rank for each expert."""
    plain, bare = [opened(trainer, bare=bare) for bare in (False, True)]
    model = bare.model
    experts = [one.shape for one in parameters(model) if one.name.endswith(EXPERTS)]
    added = sum(16 * count * (rows + columns) for count, rows, columns in experts)
    assert len(experts) == 2 * model.num_hidden_layers
    found = [predict_run(one.run, model).needs.breakdown_bytes for one in (plain, bare)]
    assert found[1]["optimizer"] - found[0]["optimizer"] == pytest.approx(8 * added, rel=0.001)
    assert found[1]["weights"] - found[0]["weights"] >= 4 * added


def test_names_match_at_dots_and_modules_come_first():
    model = opened("axolotl", bare=False).model
    names = [one.name for one in lora_targets(model, ("q_proj",), ("experts.down_proj",))]
    assert sum(name.endswith("q_proj") for name in names) == model.num_hidden_layers
    assert sum(name.endswith("experts.down_proj") for name in names) == model.num_hidden_layers
    assert len(lora_targets(model, (), ("own_proj", "nothing.here"))) == 0
    both = lora_targets(model, "all-linear", EXPERTS)
    assert len({one.name for one in both}) == len(both)
