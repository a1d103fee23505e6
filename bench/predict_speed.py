"""CPU time of `vramwise predict` for an 8B LoRA run (4 steps and an eval), start included, against `import torch`.

Then, in one process that has everything loaded: the same prediction, and a further one with one value changed, as a
search or a slider asks for them. A changed value also for TRL and LLaMA-Factory, whose losses are not fused.

Usage: python bench/predict_speed.py [PYTHON-WITH-TORCH]. The goals are under 0.5 s, 0.25 s warm, 0.05 s a change.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

CONFIG = """\
base_model: meta-llama/Llama-3.1-8B
sequence_len: 2048
pad_to_sequence_len: true
micro_batch_size: 1
bf16: true
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
gradient_checkpointing: true
val_set_size: 0.1
eval_steps: 4
"""
ROUNDS = 7
CHANGES = (
    *("micro_batch_size=2", "sequence_len=1024", "lora_r=32", "gradient_checkpointing=false"),
    *("optimizer=adamw_bnb_8bit", "eval_batch_size=2"),
)
ALLOCATOR = "expandable_segments:False"
SHARED = """\
model_name_or_path: meta-llama/Llama-3.1-8B
learning_rate: 1.0e-4
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
bf16: true
eval_strategy: steps
output_dir: out
"""
# Others' texts and changes.
OTHERS = {
    "TRL": (
        SHARED
        + "dataset_name: trl-lib/Capybara\nmax_length: 2048\nuse_peft: true\nlora_r: 16\n"
        + "gradient_checkpointing: true\n",
        ("lora_r=32", "max_length=1024", "per_device_train_batch_size=2", "gradient_checkpointing=false"),
    ),
    "LLaMA-Factory": (
        SHARED
        + "stage: sft\ndo_train: true\nfinetuning_type: lora\nlora_target: all\nlora_rank: 8\ndataset: identity\n"
        + "template: llama3\ncutoff_len: 2048\nval_size: 0.1\nper_device_eval_batch_size: 1\neval_steps: 500\n",
        ("lora_rank=16", "cutoff_len=1024", "per_device_train_batch_size=2", "gradient_accumulation_steps=4"),
    ),
}


def cpu_seconds(command: list[str]) -> float | None:
    """Median CPU time of a command, or None where it fails."""
    times = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        code = subprocess.run(command, capture_output=True, check=False).returncode
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if code not in (0, 1):
            return None
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(times)


def warm_seconds(text: str, changes: Sequence[str]) -> dict[str, float]:
    """Median CPU time of a prediction in this process, and of a further one with one value changed, by change."""

    from vramwise.opening.options import Options, PredictOptions, Text
    from vramwise.opening.subject import open_subject
    from vramwise.verbs.predict import changed

    times: dict[str, list[float]] = {}
    options = Options(gpu="rtx-4090")
    for _ in range(ROUNDS):
        subject = open_subject(Text(text), options)
        start = time.process_time()
        subject.prediction()
        times.setdefault("as it is", []).append(time.process_time() - start)
        for words in changes:
            start = time.process_time()
            changed(subject, options, PredictOptions(), [words]).prediction()
            times.setdefault(words, []).append(time.process_time() - start)
        start = time.process_time()
        subject.with_run(subject.run.changed(allocator=ALLOCATOR)).prediction()
        times.setdefault(ALLOCATOR, []).append(time.process_time() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def print_warm() -> None:
    """Print them, and median and worst of the changes."""
    times = warm_seconds(CONFIG, CHANGES)
    print(f"warm               {times.pop('as it is'):6.3f} s CPU  (goal: under 0.25)")
    for name, seconds in times.items():
        print(f"  {name:30} {seconds:6.3f} s")
    middle, worst = statistics.median(times.values()), max(times.values())
    print(f"one value changed  {middle:6.3f} s CPU  median, {worst:.3f} s worst  (goals: under 0.05, 0.08)")
    for trainer, (text, changes) in OTHERS.items():
        times = warm_seconds(text, changes)
        found = [times[words] for words in changes]
        print(f"{trainer}: {min(found):.3f} to {max(found):.3f} s CPU for one value changed  (goal: under 0.2)")


def main() -> int:
    """Print all times and the ratio."""
    other = sys.argv[1] if len(sys.argv) > 1 else sys.executable
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yml"
        path.write_text(CONFIG)
        command = [sys.executable, "-m", "vramwise", "predict", str(path), "--gpu", "rtx-4090", "--steps", "4"]
        ours = cpu_seconds(command)
    if ours is None:
        raise SystemExit("vramwise predict failed")
    print(f"vramwise predict   {ours:5.2f} s CPU  (goal: under 0.5)")
    print_warm()
    torch = cpu_seconds([other, "-c", "import torch; torch.zeros(1)"])
    if torch is None or subprocess.run([other, "-c", "import torch"], capture_output=True, check=False).returncode:
        print("torch is not installed there: no ratio")
        return 0
    print(f"import torch       {torch:5.2f} s CPU")
    print(f"ratio              {ours / torch:5.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
