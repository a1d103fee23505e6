"""Recorded ranks of the real Axolotl, two and four on one card: predicted as a user would, loading included."""

import json
from functools import cache
from pathlib import Path

import pytest

import ranks
from axolotl import Figures, measured
from vramwise.options import Options
from vramwise.subject import open_subject

DEV, CONTACT = [
    {row["name"]: row for row in ranks.rows([Path(ranks.RUNS / f"ranks-{kind}.jsonl")])} for kind in ("dev", "contact")
]
ROWS = DEV | CONTACT


@cache
def predicted(name: str) -> Figures:
    return ranks.predicted(ROWS[name])[0]


def off(name: str, figure: str) -> float:
    """Predicted against measured."""
    return getattr(predicted(name), figure) / getattr(measured(ROWS[name]), figure) - 1


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("figure", ["load_allocated", "load_reserved"])
def test_what_is_whole_while_shards_are_made(name, figure):
    """DDP's buckets of weights, a unit on its way to the card, a 4-bit base that is whole until all is cut."""
    assert abs(off(name, figure)) < 0.001


@pytest.mark.parametrize("name", ROWS)
def test_training(name):
    """ZeRO 3 gathers ahead with every module that is called, also those that hold no weight."""
    assert abs(off(name, "reserved")) < 0.004


@pytest.mark.parametrize("name", ROWS)
def test_what_tensors_hold(name):
    """A head that is a unit by itself inside of PEFT's model, read by a loss that never calls it; shared embeddings,
    whose gradient stays whole while their unit's are exchanged."""
    assert abs(off(name, "allocated")) < 0.001


@pytest.mark.parametrize(("release", "wide"), [("0.19.0", False), ("0.20.0", True), ("0.21.0", True)])
def test_embeddings_of_qlora_under_fsdp_stay_in_fp32_since_0_20(tmp_path, release, wide):
    """Before, Axolotl cast nothing under FSDP; since then nothing is cast back."""
    row = ROWS["fsdp2_qlora_llama8b8_w2"]
    path = tmp_path / "config.yml"
    path.write_text(json.dumps({**row["config"], "base_model": "NousResearch/Meta-Llama-3-8B"}))
    run = open_subject(path, Options(gpu="2xh200", versions=(f"axolotl=={release}",))).run
    assert run.precision.fp32_embeddings is wide
    assert run.loading.loads_through == "device"
