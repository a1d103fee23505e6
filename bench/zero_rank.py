"""What one rank of a ZeRO, FSDP 2 or DDP run takes, measured with the real libraries: on one card, or on the CPU.

The other ranks are pretended: torch's fake process group takes part in every collective and moves nothing. Cases are in
`rank_cases.py`. Predict first, then measure, then compare:

    python bench/zero_rank.py --predict predicted.jsonl          # needs this repository alone
    python bench/zero_rank.py OUT [--only NAME,NAME] [--jobs 4]  # needs torch, transformers, peft, deepspeed
    python bench/zero_rank.py --compare predicted.jsonl OUT/measured.jsonl

On a card: torch with CUDA, and transformers, peft, accelerate, bitsandbytes and deepspeed on PYTHONPATH (no compiled op
of DeepSpeed is used: offloaded optimizers are torch's own, on the host). Without one: DS_ACCELERATOR=cpu and `--only`
small cases, where a dispatch mode adds up what lives, after each op; with `--tiny` every case is of the tiny shape.
Phases: load (the model), wrap (engine or shards), forward, backward, step; each with its peak of steps 1 to n, in MiB.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

from rank_cases import CASES, SHAPES  # noqa: E402

MIB = 1024**2


def main() -> None:
    """Predict, compare, or measure: each case in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--predict", type=Path)
    parser.add_argument("--compare", type=Path, nargs=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--tiny", action="store_true", help="the tiny shape and short rows, as on a CPU")
    parser.add_argument("--parts", action="store_true", help="on the CPU: what the peaks are made of")
    parser.add_argument("--one", help="for itself: run this case here")
    options = parser.parse_args()
    wanted = [case for case in CASES if not options.only or case["name"] in options.only.split(",")]
    if options.tiny:
        wanted = [case | {"shape": "tiny", "width": 32, "rows": 1} for case in wanted]
    if options.compare:
        compare(*options.compare)
    elif options.predict:
        from rank_predict import predict

        options.predict.write_text("".join(json.dumps(predict(case)) + "\n" for case in wanted))
    elif options.one:
        case = next(case for case in wanted if case["name"] == options.one)
        print(json.dumps(measure(case, options.parts)))
    else:
        _measure_all(wanted, options)


def _measure_all(wanted: list[dict[str, Any]], options: argparse.Namespace) -> None:
    options.out.mkdir(parents=True, exist_ok=True)

    def in_process(case: dict[str, Any]) -> str:
        words = [sys.executable, __file__, "--one", case["name"]]
        words += ["--tiny"] * options.tiny + ["--parts"] * options.parts
        done = subprocess.run(words, capture_output=True, text=True, timeout=560, check=False)
        (options.out / f"{case['name']}.log").write_text(done.stdout + done.stderr)
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"name"')]
        return lines[-1] if lines else json.dumps({"name": case["name"], "failed": done.stderr[-400:]})

    with ThreadPoolExecutor(options.jobs) as pool, (options.out / "measured.jsonl").open("w") as file:
        for line in pool.map(in_process, wanted):
            print(line, flush=True)
            file.write(line + "\n")
            file.flush()


def compare(predicted: Path, measured: Path) -> None:
    """One line a case: allocated by phase and reserved at all, predicted over measured."""
    found = {row["name"]: row for row in map(json.loads, measured.read_text().splitlines())}
    for row in map(json.loads, predicted.read_text().splitlines()):
        real = found.get(row["name"])
        if real is None or "failed" in real or "failed" in row:
            print(f"{row['name']:24s} {(real or {}).get('failed', row.get('failed', 'not run'))[-120:]!r}")
            continue
        words = [f"{row['name']:24s}"]
        real["allocated"]["load"] = max(real["allocated"]["load"], real["allocated"].get("wrap", 0))
        for phase in ("load", "forward", "backward", "step"):
            ours, theirs = row["allocated"].get(phase), real["allocated"].get(phase)
            words.append(f"{phase} {ours:.1f}/{theirs:.1f}" if ours and theirs else f"{phase} -")
        if real.get("reserved"):
            ours, theirs = row["reserved"], real["reserved"]
            words.append(f"reserved {ours:.0f}/{theirs:.0f} {100 * (ours / theirs - 1):+.1f}%")
        print("  ".join(words))


def measure(case: dict[str, Any], parts: bool) -> dict[str, Any]:
    """One case: peaks by phase, on the card as the allocator counts them."""
    import torch

    from rank_watch import CardWatch, HostWatch

    if torch.cuda.is_available():
        torch.cuda.set_device(0)
        watch: Any = CardWatch()
    else:
        watch = HostWatch(parts)
    os.environ |= {"LOCAL_RANK": "0", "RANK": "0", "WORLD_SIZE": str(case["ranks"])}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29599"}
    try:
        with watch:
            _run(case, watch)
    except Exception:
        return {"name": case["name"], "failed": traceback.format_exc()[-1500:]} | watch.report()
    return {"name": case["name"], "case": case} | watch.report()


def _run(case: dict[str, Any], watch: Any) -> None:
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from rank_models import build, fullest_rank, optimizer_of, wrap

    if case["kind"] == "ddp" and torch.cuda.is_available():
        dist.init_process_group("nccl", rank=0, world_size=1)
    else:
        with watch.uncounted():
            rank = fullest_rank(case)
        os.environ["RANK"] = str(rank)
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=case["ranks"])
    watch.phase("load")

    model = build(case, watch.device)
    watch.phase("wrap")
    model, engine = wrap(case, model, watch)
    optimizer = None if engine is not None else optimizer_of(case, model)
    trained_on = engine if engine is not None else model
    for number in range(1, case["steps"] + 1):
        _step(case, trained_on, engine, optimizer, watch, number)


def _step(case: dict[str, Any], model: Any, engine: Any, optimizer: Any, watch: Any, number: int) -> None:
    """One optimizer step, in the order of transformers' trainer and accelerate."""
    import torch

    shape, vocabulary = (case["rows"], case["width"]), SHAPES[case["shape"]]["vocab_size"]
    with watch.uncounted():
        batches = [torch.randint(0, vocabulary, shape, device=watch.device) for _ in range(case["accumulation"])]
    for position, ids in enumerate(batches):
        last = position == len(batches) - 1
        watch.phase("forward", number)
        with _context(case, model, engine, last=last, device=watch.device):
            loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids).loss
            watch.phase("backward", number)
            if engine is None:
                (loss / len(batches)).backward()
            else:
                engine.set_gradient_accumulation_boundary(is_boundary=last)
                engine.backward(loss)
        if last:
            watch.phase("step", number)
            if engine is None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            else:
                engine.step()
        del loss


@contextlib.contextmanager
def _context(case: dict[str, Any], model: Any, engine: Any, *, last: bool, device: str) -> Iterator[None]:
    """Autocast where there is no engine; gradients are exchanged at the last micro-step alone."""
    import torch

    if engine is not None:
        yield
        return
    if case["kind"] == "fsdp2":
        model.set_requires_gradient_sync(last)
    waiting = model.no_sync() if case["kind"] == "ddp" and not last else contextlib.nullcontext()
    with waiting, torch.autocast(device, torch.bfloat16):
        yield


if __name__ == "__main__":
    main()
