"""Provoke six real out-of-memory failures on a GPU, each with a known cause, and keep what they leave behind.

Needs torch, transformers with accelerate, and an NVIDIA card with 24 GiB or more; weights are random, nothing is
downloaded. A memory fraction makes the card small, so the failures are torch's own and come within seconds. Each case
runs in a process of its own, as a training program would: its output is the log, and an observer dumps torch's memory
history at the moment of the failure.

    python bench/provoke_oom.py OUT [--only logits,leak]

writes OUT/cases.jsonl (one object a case: name, cause, allocator, log) and OUT/<name>.pickle.gz, with the folders of
this machine taken out of both. Copied to tests/data/diagnose/h200/, they are diagnosed by
tests/diagnose/test_real_ooms.py. `--clean` does no more than take the folders out of the files that OUT has.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MIB = 1024**2
GIB = 1024**3
# A snapshot is kept if it packs to less than this; else the case is run again with a shorter history.
LARGEST_BYTES = 3_000_000
HISTORY = (24_000, 12_000, 5_000)
SECONDS = 110

# Folders of the machine: what lies before site-packages or the standard library, and the folder of a script.
INSTALLED = re.compile(r"/[^\s\"'|:]*?/(?=(?:site|dist)-packages/)|/[^\s\"'|:]*?/lib/(?=python3\.\d+/)")
OWN_SCRIPT = re.compile(r"(?:/[^\s\"'|:/]+)+/provoke_oom\.py")
OTHER_FOLDER = re.compile(
    r"(?<![\w.-])/(?:work|root|home|opt|tmp|mnt|usr|var|dev/shm)/(?:[^\s\"'|:/]+/)*(?=[^\s\"'|:/]+)"
)

# name → (cause, allocator settings of the process)
CASES = {
    "capacity": ("capacity", "expandable_segments:True"),
    "fragmentation": ("fragmentation", ""),
    "eval-batch": ("eval-batch", "expandable_segments:True"),
    "step-2": ("optimizer-state", "expandable_segments:True"),
    "logits": ("logits", "expandable_segments:True"),
    "leak": ("leak", "expandable_segments:True"),
}


def main() -> int:
    """Run the cases one after another; a case that does not fail as it should is reported and left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--clean", action="store_true")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--history", type=int, default=HISTORY[0], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        run_case(arguments.case, arguments.out, arguments.history)
        return 0
    if arguments.clean:
        clean_folder(arguments.out)
        return 0
    arguments.out.mkdir(parents=True, exist_ok=True)
    kept = []
    for name in arguments.only.split(","):
        found = provoke(name, arguments.out)
        if found is not None:
            kept.append(found)
    write_cases(arguments.out, kept)
    print(f"{len(kept)} of {len(arguments.only.split(','))} cases kept in {arguments.out}")
    return 0 if len(kept) == len(arguments.only.split(",")) else 1


def provoke(name: str, out: Path) -> dict[str, Any] | None:
    """One case in its own process: its log and its snapshot, or None where it did not run out of memory."""
    cause, allocator = CASES[name]
    for history in HISTORY:
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            log = _in_process(name, Path(folder), history, allocator)
            snapshot = Path(folder) / "snapshot.pickle"
            failed = "out of memory" in log.lower()
            if not failed or not snapshot.is_file():
                print(f"{name}: no out-of-memory with a snapshot. The log ends:\n{log[-3000:]}", flush=True)
                return None
            packed = gzip.compress(clean_snapshot(snapshot.read_bytes()), 9, mtime=0)
        seconds = time.monotonic() - started
        print(f"{name}: {seconds:.0f} s, log {len(log):,} characters, snapshot {len(packed):,} bytes", flush=True)
        if len(packed) <= LARGEST_BYTES:
            (out / f"{name}.pickle.gz").write_bytes(packed)
            return {"name": name, "cause": cause, "allocator": allocator, "log": clean_text(log)}
    print(f"{name}: its snapshot is larger than {LARGEST_BYTES:,} bytes", flush=True)
    return None


def _in_process(name: str, folder: Path, history: int, allocator: str) -> str:
    environment = {
        **os.environ,
        "PYTORCH_CUDA_ALLOC_CONF": allocator,
        "PYTORCH_ALLOC_CONF": allocator,
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "WANDB_DISABLED": "true",
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0],
    }
    command = [sys.executable, str(Path(__file__).resolve()), str(folder), "--case", name, "--history", str(history)]
    with (folder / "log").open("wb") as log:
        try:
            subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=environment, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            log.write(b"\nstopped: too slow\n")
    return (folder / "log").read_bytes().decode("utf-8", "replace")


def write_cases(out: Path, cases: list[dict[str, Any]]) -> None:
    """One object a line."""
    with (out / "cases.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(case, ensure_ascii=False) + "\n" for case in cases)


# --- without the machine's folders


def clean_folder(out: Path) -> None:
    """Clean the files of an earlier run."""
    lines = (out / "cases.jsonl").read_text("utf-8").splitlines()
    write_cases(out, [case | {"log": clean_text(case["log"])} for case in map(json.loads, lines)])
    for path in out.glob("*.pickle.gz"):
        path.write_bytes(gzip.compress(clean_snapshot(gzip.decompress(path.read_bytes())), 9, mtime=0))


def clean_text(text: str) -> str:
    """Packages begin at site-packages/, this script is called train.py, other files lose their folder."""
    for pattern, instead in ((INSTALLED, ""), (OWN_SCRIPT, "train.py"), (OTHER_FOLDER, "")):
        text = pattern.sub(instead, text)
    return text


def clean_snapshot(data: bytes) -> bytes:
    """A snapshot with clean file names, as plain containers again; nothing in the file is run."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
    from vramwise.recordings.unpickle import load_plain

    snapshot = load_plain(data)
    clean_names(snapshot, set())
    return pickle.dumps(snapshot, protocol=4)


def clean_names(value: Any, seen: set[int]) -> None:
    """Clean the file names of all frames in place; torch writes a stack once and refers to it again."""
    if id(value) in seen or not isinstance(value, (dict, list)):
        return
    seen.add(id(value))
    if isinstance(value, dict) and isinstance(value.get("filename"), str):
        value["filename"] = clean_text(value["filename"])
    for part in value.values() if isinstance(value, dict) else value:
        clean_names(part, seen)


# --- inside the process of a case


def run_case(name: str, folder: Path, history: int) -> None:
    """Fail as the case says. The exception is left to end the process, so the log has its traceback."""
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device")
    record(folder / "snapshot.pickle", history)
    BODIES[name]()
    print("the case ended without a failure")


def record(path: Path, history: int) -> None:
    """Record the allocator's events with Python stacks, and dump them at the first failure."""
    import torch

    torch.zeros(1, device="cuda")
    try:
        torch.cuda.memory._record_memory_history(max_entries=history, context="all", stacks="python")
    except TypeError:  # an older signature
        torch.cuda.memory._record_memory_history(True, trace_alloc_max_entries=history, trace_alloc_record_context=True)

    def observer(device: int, alloc: int, device_alloc: int, device_free: int) -> None:
        if not path.exists():
            torch.cuda.memory._dump_snapshot(str(path))

    torch._C._cuda_attach_out_of_memory_observer(observer)


def limit(size_bytes: int) -> None:
    """Make the card small: torch may reserve no more than this."""
    import torch

    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, size_bytes / total))
    print(f"limited to {size_bytes / GIB:.2f} GiB of {total / GIB:.2f} GiB", flush=True)


def llama(
    *, layers: int = 8, hidden: int = 1024, vocabulary: int = 32000, attention: str = "sdpa", dtype: str = "bfloat16"
) -> Any:
    """A Llama of random weights on the card."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=hidden * 7 // 2,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        num_key_value_heads=hidden // 256,
        vocab_size=vocabulary,
        max_position_embeddings=8192,
        attn_implementation=attention,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    print(config, flush=True)
    return LlamaForCausalLM(config).to(getattr(torch, dtype)).to("cuda")


class Tokens:
    """A data set of random rows: `length(n)` tokens in row n."""

    def __init__(self, rows: int, length: Callable[[int], int], vocabulary: int) -> None:
        self.rows, self.length, self.vocabulary = rows, length, vocabulary

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> dict[str, Any]:
        import torch

        generator = torch.Generator().manual_seed(index)
        tokens = torch.randint(0, self.vocabulary, (self.length(index),), generator=generator)
        return {"input_ids": tokens, "labels": tokens.clone(), "attention_mask": torch.ones_like(tokens)}


def train(
    model: Any,
    data: Tokens,
    *,
    batch: int,
    eval_data: Tokens | None = None,
    eval_batch: int = 1,
    eval_steps: int = 5,
    steps: int = 40,
    checkpointing: bool = False,
    trainer: type | None = None,
) -> None:
    """transformers' Trainer over the data; it prints what it prints in any run."""
    from transformers import Trainer, TrainingArguments

    print(f"micro_batch_size: {batch}\neval_batch_size: {eval_batch}\nsequence_len: {data.length(0)}", flush=True)
    options: dict[str, Any] = {
        "output_dir": tempfile.mkdtemp(),
        "per_device_train_batch_size": batch,
        "per_device_eval_batch_size": eval_batch,
        "max_steps": steps,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "bf16": True,
        "optim": "adamw_torch",
        "gradient_checkpointing": checkpointing,
        "dataloader_num_workers": 0,
        "remove_unused_columns": False,
    }
    if eval_data is not None:
        options |= {"eval_strategy": "steps", "eval_steps": eval_steps, "prediction_loss_only": True}
    kind = trainer or Trainer
    kind(model=model, args=TrainingArguments(**options), train_dataset=data, eval_dataset=eval_data).train()


def body_capacity() -> None:
    """The activations of a micro-batch that is far too large for the card, layer after layer."""
    model = llama(layers=24, hidden=1024, vocabulary=8192)
    limit(6 * GIB)
    train(model, Tokens(400, lambda _: 1024, 8192), batch=16)


def body_eval_batch() -> None:
    """Training at batch 2 fits; the evaluation at batch 64 does not."""
    vocabulary = 64000
    model = llama(layers=4, hidden=1024, vocabulary=vocabulary)
    limit(8 * GIB)
    rows, evals = Tokens(400, lambda _: 512, vocabulary), Tokens(128, lambda _: 512, vocabulary)
    train(model, rows, batch=2, eval_data=evals, eval_batch=64, eval_steps=4)


def body_step_2() -> None:
    """Weights, gradients and activations fit; Adam's two states, made at the first step, do not."""
    import torch

    model = llama(layers=16, hidden=2048, vocabulary=16000, dtype="float32")
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    torch.cuda.empty_cache()
    # weights, gradients, half of the states: forward and backward of a small batch fit into what the states will need
    limit(int(weights * 3.0) + 512 * MIB)
    train(model, Tokens(400, lambda _: 64, 16000), batch=1, checkpointing=True)


def body_logits() -> None:
    """A small model with a large vocabulary: tokens × vocabulary × 4 bytes is larger than the model."""
    vocabulary = 128256
    model = llama(layers=2, hidden=512, vocabulary=vocabulary)
    limit(9 * GIB)
    # 4 × 2048 tokens: logits 2.0 GiB in bf16, 3.9 GiB in fp32
    train(model, Tokens(400, lambda _: 2048, vocabulary), batch=4)


def body_leak() -> None:
    """A trainer that keeps each step's logits for a metric, on the card."""
    import torch
    from transformers import Trainer

    kept: list[Any] = []

    class KeepsOutputs(Trainer):
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **rest: Any) -> Any:
            loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **rest)
            kept.append(outputs.logits.detach().clone())
            print(f"{{'memory/allocated (GiB)': {torch.cuda.memory_allocated() / GIB:.3f}}}", flush=True)
            return (loss, outputs) if return_outputs else loss

    vocabulary = 32000
    model = llama(layers=2, hidden=512, vocabulary=vocabulary)
    limit(5 * GIB)
    train(model, Tokens(400, lambda _: 512, vocabulary), batch=2, steps=200, trainer=KeepsOutputs)


def body_fragmentation() -> None:
    """Enough memory, but in pieces: blocks kept inside segments that were larger, under torch's default allocator.

    A cache is filled from buffers that are each a little longer than the one before, as batches sorted by length are:
    of each buffer's segment a part stays in use, and what is left of it is too small for the next. After some ordinary
    steps a long batch asks for one block that all the leftovers together could hold.
    """
    import torch

    model = llama(layers=2, hidden=512, vocabulary=8192)
    limit(10 * GIB)
    cache = list(fill_cache(10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for step in range(1, 13):
        tokens = torch.randint(0, 8192, (1, 256), device="cuda")
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"\r {step:3d}%|▏         | {step}/100 [00:{step:02d}<01:30,  1.01s/it]", end="", flush=True)
    print(f"\ncache: {len(cache)} blocks", flush=True)
    long_batch()


def fill_cache(rows: int) -> Iterator[Any]:
    """Read longer and longer rows through a buffer, and keep a bit more than half of each."""
    import torch

    for row in range(rows):
        buffer = torch.empty(800 * MIB + row * 4 * MIB, dtype=torch.uint8, device="cuda")
        del buffer
        yield torch.empty(450 * MIB, dtype=torch.uint8, device="cuda")


def long_batch() -> Any:
    """A batch with several times the tokens of those before."""
    import torch

    return torch.empty(3 * GIB, dtype=torch.uint8, device="cuda")


BODIES: dict[str, Callable[[], None]] = {
    "capacity": body_capacity,
    "fragmentation": body_fragmentation,
    "eval-batch": body_eval_batch,
    "step-2": body_step_2,
    "logits": body_logits,
    "leak": body_leak,
}

if __name__ == "__main__":
    sys.exit(main())
