"""Runs of the embedded engine: saved, resumed, stopped, evaluated; and what it refuses."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from installed import Later, need, needs
from tiny_runs import EXAMPLE, losses, make_folder, prepared, train_here, write_config
from vramwise.errors import VramwiseError
from vramwise.training.checkpoints import checkpoints, is_complete, latest_whole

pytestmark = needs("torch", "transformers")
torch = Later("torch")
transformers = Later("transformers")
isolation = Later("vramwise.training.worker.packing")

SOURCE = Path(__file__).parent.parent.parent / "src"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path, samples=30)


def command(*words):
    return [sys.executable, "-m", "vramwise", *map(str, words)]


def logged(folder):
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return [entry["loss"] for entry in history if "loss" in entry]


def test_the_example_trains_from_one_command(tmp_path):
    """`vramwise train examples/tiny/config.yml --random-weights`, shortened to one epoch."""
    text = (EXAMPLE / "config.yml").read_text()
    config = tmp_path / "config.yml"
    text = text.replace("num_epochs: 4", "num_epochs: 1").replace("./model", str(EXAMPLE / "model"))
    config.write_text(text.replace("./samples.jsonl", str(EXAMPLE / "samples.jsonl")))
    done = subprocess.run(
        command("train", config, "--random-weights"),
        capture_output=True, text=True, env=ENVIRONMENT, cwd=tmp_path, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    out = tmp_path / "outputs" / "tiny"
    found = logged(out)
    assert found[0] - found[-1] > 2
    assert (out / "model.safetensors").is_file()
    plan = json.loads((out / "vramwise.json").read_text())
    assert plan["decisions"]
    assert f"vramwise train → {out}" in done.stdout
    assert "micro 2 × accumulation 2 × ranks 1 = 4" in done.stdout


def test_a_resumed_run_ends_as_an_undisturbed_one(folder):
    settings = {"num_epochs": 2, "save_steps": 3, "save_strategy": None}
    whole = train_here(write_config(folder, output_dir=str(folder / "whole"), **settings))
    config = write_config(folder, output_dir=str(folder / "parts"), **settings)
    train_here(config, callbacks=[stop_after(10)])
    last = latest_whole(folder / "parts").folder
    assert Path(last).name == "checkpoint-9"
    plan = prepared(config, resume=True).plan
    assert plan.resume_from == last
    # in smaller pieces, from the middle of the second epoch
    smaller = replace(plan, micro_batch_size=1, gradient_accumulation_steps=4)
    resumed = train_here(config, plan=smaller)
    assert losses(resumed) == pytest.approx(losses(whole), abs=1e-4)
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-4)


def stop_after(step):
    from transformers import TrainerCallback

    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **more):
            control.should_training_stop = state.global_step >= step

    return Stop()


def test_old_checkpoints_go(folder):
    train_here(write_config(folder, save_steps=2, save_strategy=None, save_total_limit=2))
    kept = checkpoints(folder / "out")
    assert [one.name for one in kept] == ["checkpoint-6", "checkpoint-8"]
    assert all(map(is_complete, kept))


def test_the_eval_loss_does_not_depend_on_the_eval_batch(folder):
    settings = {"val_set_size": 7, "eval_strategy": "epoch", "max_steps": 2}
    found = []
    for size in (1, 4):
        out = str(folder / f"eval{size}")
        trainer = train_here(write_config(folder, output_dir=out, eval_batch_size=size, **settings))
        found += [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert len(found) == 2
    assert found[0] == pytest.approx(found[1], abs=1e-5)


def test_a_text_of_lora_targets_is_an_expression(folder):
    need("peft")
    pattern = r"model\.layers\.1\..*\.(q|v)_proj"
    config = write_config(folder, adapter="lora", lora_r=4, lora_alpha=8, lora_target_modules=pattern, max_steps=1)
    trained = [name for name, parameter in train_here(config).model.named_parameters() if parameter.requires_grad]
    assert len(trained) == 4
    assert all(
        "layers.1.self_attn.q_proj.lora_" in name or "layers.1.self_attn.v_proj.lora_" in name for name in trained
    )


def test_lora_trains_the_adapter_alone_and_saves_it(folder):
    need("peft")
    config = write_config(
        folder, adapter="lora", lora_r=4, lora_alpha=8, lora_target_linear=True, gradient_checkpointing=True
    )
    trainer = train_here(config)
    trained = {name for name, parameter in trainer.model.named_parameters() if parameter.requires_grad}
    assert trained
    assert all("lora_" in name for name in trained)
    assert losses(trainer)[0] > losses(trainer)[-1]
    assert (folder / "out" / "adapter_model.safetensors").is_file()


def test_qlora_quantises_random_weights_too(folder):
    need("bitsandbytes")
    config = write_config(
        folder,
        adapter="qlora",
        load_in_4bit=True,
        lora_r=4,
        lora_alpha=8,
        lora_target_linear=True,
        bf16=True,
        max_steps=3,
    )
    trainer = train_here(config)
    kinds = {type(module).__name__ for module in trainer.model.modules()}
    assert "Linear4bit" in kinds
    assert len(losses(trainer)) == 3
    assert not list((folder / "out").glob(".random-weights-*"))


def test_random_weights_only_when_asked(folder):
    plan = replace(prepared(write_config(folder)).plan, random_weights=False)
    with pytest.raises(VramwiseError, match="--random-weights"):
        train_here(folder / "config.yml", plan=plan)


def test_fp16_weights_cannot_be_unscaled(folder):
    """Why `train` refuses a full fine-tune in fp16: torch's own scaler stops at the first fp16 gradient."""
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.from_pretrained(folder / "model"), dtype=torch.float16
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(model(input_ids=torch.tensor([[1, 2, 3]]), labels=torch.tensor([[1, 2, 3]])).loss).backward()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.unscale_(optimizer)


def test_isolation_is_seen_and_its_absence_too(folder):
    torch.manual_seed(0)
    config = transformers.AutoConfig.from_pretrained(folder / "model")
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    change, scale = isolation.leak(model)
    assert change < 1e-5 * scale
    isolation.check_isolation(model, "sdpa")

    class Leaking(torch.nn.Module):
        """Sees through the positions: what packing would do under an attention that knows no bounds."""

        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, input_ids, position_ids, **more):
            return self.inner(input_ids=input_ids, **more)

    with pytest.raises(VramwiseError, match="see each other"):
        isolation.check_isolation(Leaking(), "sdpa")
