"""The smallest card that `fit` names for a config as it is."""

import json
from pathlib import Path

import pytest

from vramwise.facts.gpus import find_gpus

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SMALL = """\
base_model: HuggingFaceTB/SmolLM2-135M
adapter: lora
lora_r: 8
lora_alpha: 16
lora_target_linear: true
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 1024
pad_to_sequence_len: true
micro_batch_size: 2
gradient_accumulation_steps: 4
learning_rate: 0.0002
bf16: true
optimizer: adamw_torch_fused
gradient_checkpointing: true
attn_implementation: sdpa
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.yml"
    path.write_text(SMALL)
    return path


@pytest.mark.usefixtures("brief_searches")
def test_the_smallest_card_is_the_same_whichever_card_is_asked_about(vramwise, config):
    cards = set()
    for gpu in ("rtx-4090", "a100-80gb"):
        found = json.loads(vramwise("fit", config, "--gpu", gpu, "--format", "json").stdout)
        cards.add(found["smallest_card"]["gpu"])
    assert len(cards) == 1


@pytest.mark.usefixtures("brief_searches")
@pytest.mark.parametrize(("torch", "smallest"), [("2.7", "P4"), ("2.10", "TITAN V"), ("2.13", "T4")])
def test_torch_has_kernels_for_the_smallest_card(vramwise, config, monkeypatch, torch, smallest):
    cards = [find_gpus(name)[1] for name in ("P4", "TITAN V", "T4")]
    monkeypatch.setattr("vramwise.verbs.fitting.smallest_card.discrete_gpus", lambda: cards)
    config.write_text(SMALL.replace("bf16: true", "bf16: false\nfp16: true"))
    found = json.loads(vramwise("fit", config, "--gpu", "rtx-4090", "--torch", torch, "--format", "json").stdout)
    assert found["smallest_card"]["gpu"] == smallest


@pytest.mark.usefixtures("brief_searches")
def test_the_smallest_card_is_judged_with_its_own_kernels(vramwise):
    """Old cards attend without flash attention and need twice as much, which says nothing about newer ones."""
    found = vramwise("fit", EXAMPLES / "support.ipynb", "--gpu", "rtx-4090", "--offline", "--format", "json")
    assert json.loads(found.stdout)["smallest_card"]["gpu"] == "B100"  # 82.6 GiB, and up to 158 with mixed rows


@pytest.mark.usefixtures("brief_searches")
def test_a_run_that_is_not_fully_predicted_is_not_tried_on_every_card(vramwise, config, monkeypatch):
    from vramwise.verbs.fitting import smallest_card

    asked, needed = [], smallest_card._needed_bytes
    monkeypatch.setattr(smallest_card, "_needed_bytes", lambda one: asked.append(one) or needed(one))
    monkeypatch.setattr(smallest_card, "_fits", lambda one: pytest.fail("no card is certain"))
    config.write_text(SMALL + "rl: ebft\n")
    found = json.loads(vramwise("fit", config, "--gpu", "rtx-4090", "--format", "json").stdout)
    assert found["smallest_card"] is None
    assert len(asked) == 1
