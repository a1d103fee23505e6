"""Ways to use several GPUs: which are asked, which is the fastest that fits, and how it is started."""

import json

import pytest

from vramwise.opening.options import FitOptions, Options
from vramwise.opening.subject import open_subject
from vramwise.render.fit_json import fit_json
from vramwise.render.fit_text import over_cards, render_fit
from vramwise.verbs.fit import fit_source
from vramwise.verbs.fitting.over_cards import fastest, strategies

CONFIGS = {
    "axolotl": {
        "base_model": "NousResearch/Meta-Llama-3-8B",
        "sequence_len": 2048,
        "micro_batch_size": 1,
        "bf16": True,
        "datasets": [{"path": "a/b", "type": "alpaca"}],
        "gradient_checkpointing": True,
        "output_dir": "o",
        "optimizer": "adamw_torch_fused",
        "attn_implementation": "flash_attention_2",
        "sample_packing": True,
    },
    "trl:sft": {
        "model_name_or_path": "NousResearch/Meta-Llama-3-8B",
        "dataset_name": "a/b",
        "dtype": "bfloat16",
        "max_length": 2048,
        "per_device_train_batch_size": 1,
        "output_dir": "o",
    },
    "llamafactory": {
        "model_name_or_path": "NousResearch/Meta-Llama-3-8B",
        "stage": "sft",
        "finetuning_type": "full",
        "do_train": True,
        "dataset": "alpaca_en_demo",
        "template": "llama3",
        "cutoff_len": 2048,
        "bf16": True,
        "per_device_train_batch_size": 1,
        "output_dir": "o",
    },
}
STARTS = {
    "axolotl": "axolotl train",
    "trl:sft": "trl sft --config",
    "llamafactory": "FORCE_TORCHRUN=1 llamafactory-cli",
}


def opened(tmp_path, trainer, gpu):
    path = tmp_path / "c.yaml"
    path.write_text(json.dumps(CONFIGS[trainer]))
    return open_subject(path, Options(gpu=gpu, trainer=trainer))


@pytest.mark.parametrize("trainer", CONFIGS)
def test_every_way_is_asked_for_every_trainer(tmp_path, trainer):
    found = strategies(opened(tmp_path, trainer, "8xh100"))
    assert {one.kind for one in found} >= {"ddp", "fsdp2", "zero1", "zero2", "zero3"}
    offloaded = {one.kind for one in found if one.offloads}
    assert offloaded >= {"fsdp2", "zero2", "zero3"}
    best = fastest(found)
    assert best is not None
    assert all(one.attempt.seconds >= best.attempt.seconds for one in found if one.attempt.fits)
    assert STARTS[trainer] in best.launch


def test_offloading_needs_less_of_the_card_and_takes_longer(tmp_path):
    found = strategies(opened(tmp_path, "trl:sft", "8xh100"))
    for kind in ("fsdp2", "zero3"):
        plain, moved = [next(one for one in found if one.kind == kind and one.offloads is off) for off in (False, True)]
        needs = [one.attempt.prediction.needs.highest_reserved_bytes for one in (plain, moved)]
        assert needs[1] < needs[0]
        assert moved.attempt.seconds > plain.attempt.seconds


def test_one_card_has_nothing_to_choose(tmp_path):
    assert strategies(opened(tmp_path, "axolotl", "h100")) == ()


def test_the_report_says_that_speeds_were_not_measured(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(json.dumps(CONFIGS["axolotl"]))
    report = fit_source(str(path), Options(gpu="8xh100"), FitOptions(online=False))
    lines = over_cards(report)
    assert "speed of several GPUs: not measured" in lines[0]
    assert sum("→" in line for line in lines) == 1
    assert set(lines) <= set(render_fit(report))
    rows = fit_json(report)["strategies"]
    assert {row["sharding"] for row in rows} >= {"ddp", "fsdp2", "zero3"}
    assert all(row["speed"]["error"] is None for row in rows if row["speed"])


def test_what_is_not_written_is_said(tmp_path):
    """--allow writes the sharding; offloading is left to the user, unless the trainer's own file has it."""
    found = strategies(opened(tmp_path, "axolotl", "8xh100"))
    by_hand = {one.name: one.by_hand for one in found}
    assert by_hand["FSDP 2"] == by_hand["ZeRO 2 with offload"] == ""  # Axolotl's zero2.json offloads
    assert "offload_param" in by_hand["ZeRO 3 with offload"]
    report = fit_source(str(tmp_path / "c.yaml"), Options(gpu="8x10GB"), FitOptions(online=False))
    chosen = report.fastest_strategy
    assert chosen is not None
    assert chosen.by_hand
    line = over_cards(report)[-1]
    assert line.startswith("  Fits: ")  # the rates of a size alone are not known
    assert f"set {chosen.by_hand} yourself" in line
