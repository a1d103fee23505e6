"""CPU time of `vramwise predict` for an 8B LoRA run (4 steps and an eval), start included, against `import torch`.

Usage: python bench/predict_speed.py [PYTHON-WITH-TORCH]. The goal is under 0.5 s.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
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


def main() -> int:
    """Print both times and their ratio."""
    other = sys.argv[1] if len(sys.argv) > 1 else sys.executable
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yml"
        path.write_text(CONFIG)
        command = [sys.executable, "-m", "vramwise", "predict", str(path), "--gpu", "rtx-4090", "--steps", "4"]
        ours = cpu_seconds(command)
    if ours is None:
        raise SystemExit("vramwise predict failed")
    print(f"vramwise predict   {ours:5.2f} s CPU  (goal: under 0.5)")
    torch = cpu_seconds([other, "-c", "import torch; torch.zeros(1)"])
    if torch is None or subprocess.run([other, "-c", "import torch"], capture_output=True, check=False).returncode:
        print("torch is not installed there: no ratio")
        return 0
    print(f"import torch       {torch:5.2f} s CPU")
    print(f"ratio              {ours / torch:5.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
