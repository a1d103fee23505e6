"""The guard inside a real Trainer on the CPU, with a made-up device: what it writes, and that it never hurts."""

import json

import pytest

from installed import Later, needs
from vramwise.training.guard.memory_log import read_log
from vramwise.training.guard.samples import Reading
from vramwise.units import GIB, MIB

pytestmark = needs("torch", "transformers", "accelerate")
torch = Later("torch")
transformers = Later("transformers")
integration = Later("vramwise.integrations.transformers")


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    torch.set_num_threads(1)


class FakeDevice:
    """A device whose figures follow a script: grows by `leak_bytes` at every reading."""

    name = "fake:0"
    device_bytes = 24 * GIB

    def __init__(self, leak_bytes=0, fails_at=None):
        self.readings = 0
        self.resets = 0
        self.leak_bytes = leak_bytes
        self.fails_at = fails_at

    def read(self, *, fresh=False):
        self.readings += 1
        if self.readings == self.fails_at:
            raise RuntimeError("the driver is gone")
        allocated = 4 * GIB + self.readings * self.leak_bytes
        return Reading(
            allocated_bytes=allocated,
            reserved_bytes=allocated + GIB,
            peak_allocated_bytes=allocated,
            peak_reserved_bytes=allocated + GIB,
            retries=0,
            device_free_bytes=24 * GIB - allocated - GIB,
        )

    def reset_peaks(self):
        self.resets += 1


def rows(count, width):
    make = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 64, (count, width), generator=make)
    return [{"input_ids": row, "labels": row} for row in tokens]


def train(tmp_path, guard=None, *, steps=4, width=16, **more):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"),
        max_steps=steps,
        per_device_train_batch_size=2,
        report_to=[],
        logging_steps=1,
        use_cpu=True,
        disable_tqdm=True,
        **{"save_strategy": "no", **more},
    )
    trainer = transformers.Trainer(
        model=transformers.LlamaForCausalLM(config),
        args=arguments,
        train_dataset=rows(64, width),
        eval_dataset=rows(4, width),
        callbacks=[] if guard is None else [guard],
    )
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def log(tmp_path):
    return read_log(tmp_path / "out" / "memory.jsonl")


def test_every_phase_is_written(tmp_path):
    device = FakeDevice()
    guard = integration.MemoryGuard(backend=device, reset_peaks=True)
    train(tmp_path, guard, steps=2, eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=2)
    contents = log(tmp_path)
    phases = [(one["step"], one["phase"]) for one in contents.of_kind("sample")]
    assert phases == [
        (0, "load"),
        (1, "train"),
        (1, "optimizer"),
        (2, "train"),
        (2, "optimizer"),
        (2, "eval"),
        (2, "save"),
    ]
    assert device.resets == len(phases)
    assert contents.of_kind("sample")[1]["width"] == 16
    [start] = contents.of_kind("start")
    assert (start["device"], start["micro_batch_size"], start["max_steps"], start["peaks"]) == ("fake:0", 2, 2, "phase")
    assert contents.of_kind("end")
    assert guard.broken is None


def test_the_guard_changes_no_loss_and_resets_no_counter_unasked(tmp_path):
    device = FakeDevice()
    watched = train(tmp_path / "a", integration.MemoryGuard(backend=device))
    assert watched == train(tmp_path / "b")
    assert device.resets == 0


def test_warnings_are_said_once_and_written(tmp_path):
    said = []
    guard = integration.MemoryGuard(
        backend=FakeDevice(leak_bytes=400 * MIB), report=said.append, max_width=8, predict=False
    )
    train(tmp_path, guard, steps=30)
    assert [warned.rule for warned in guard.warnings] == ["batch-longer-than-declared", "allocated-grows"]
    assert len(said) == 2
    assert said[1].startswith("[allocated-grows] step ")
    assert [one["rule"] for one in log(tmp_path).of_kind("warning")] == [
        "batch-longer-than-declared",
        "allocated-grows",
    ]


def test_a_failing_device_ends_the_guard_and_not_the_training(tmp_path):
    said = []
    guard = integration.MemoryGuard(backend=FakeDevice(fails_at=3), report=said.append, predict=False)
    assert len(train(tmp_path, guard)) == 4
    assert isinstance(guard.broken, RuntimeError)
    assert said == ["the memory guard stops watching: RuntimeError: the driver is gone"]


def test_without_cuda_it_says_so_and_does_nothing(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device: run it on a machine without one, or with CUDA_VISIBLE_DEVICES=")
    guard = integration.MemoryGuard()
    assert len(train(tmp_path, guard)) == 4
    assert guard.broken is None
    assert [record["kind"] for record in log(tmp_path).records] == ["start", "end"]
    assert log(tmp_path).records[0]["device"] is None


def test_the_hook_is_gone_afterwards(tmp_path):
    guard = integration.MemoryGuard(backend=FakeDevice())
    train(tmp_path, guard)
    assert guard._hook is None
    assert json.loads((tmp_path / "out" / "memory.jsonl").read_text().splitlines()[-1])["kind"] == "end"
