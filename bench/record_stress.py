"""Record hard cases of torch's CUDA allocator on a real GPU: limits, retries, out-of-memory, streams, late starts.

Needs torch and an NVIDIA card with 100 GiB or more (the cases run side by side). Writes one snapshot per case (as
torch.cuda.memory._dump_snapshot does) and a stress-facts.json with what torch itself counted, for tests. Usage:

    python bench/record_stress.py OUT_DIR

tests/data/traces/stress-* were made by it (H200, driver 580, torch 2.11; paths in the stacks shortened afterwards).
"""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

GIB = 1024**3
MIB = 1024**2

# name: (allocator settings, limit in GiB or None, what else)
CASES = {
    "default-limit": ("", 6, {}),
    "expandable-limit": ("expandable_segments:True", 6, {}),
    "split-limit": ("max_split_size_mb:64", 6, {}),
    "split-rounding": ("max_split_size_mb:32,max_non_split_rounding_mb:64", 6, {}),
    "collect": ("garbage_collection_threshold:0.6", 6, {"pressure": 0.75}),
    "roundup-list": ("roundup_power2_divisions:[1:8,64:4,256:2,>:1],large_segment_size_mb:32", 8, {}),
    "expandable-roundup": ("expandable_segments:True,roundup_power2_divisions:16,large_segment_size_mb:64", 8, {}),
    "streams-default": ("", 8, {"streams": True}),
    "streams-expandable": ("expandable_segments:True", 8, {"streams": True}),
    "card-full-default": ("", None, {"fill": True}),
    "card-full-expandable": ("expandable_segments:True", None, {"fill": True}),
    "late-default": ("", 6, {"late": True, "frames": True}),
    "late-expandable": ("expandable_segments:True", 6, {"late": True}),
    "ring": ("", 8, {"entries": 1500}),
    "toggled": ("expandable_segments:True", 8, {"toggle": True}),
}


def main() -> None:
    """Run every case in a process of its own."""
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    facts = {}
    side_by_side = [name for name, (_, _, options) in CASES.items() if not options.get("fill")]
    with ThreadPoolExecutor(len(side_by_side)) as pool:
        facts.update(pool.map(lambda name: run_case(name, out), side_by_side))
    facts.update(run_case(name, out) for name in CASES if name not in facts)
    (out / "stress-facts.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def run_case(name: str, out: Path) -> tuple[str, dict]:
    """Record one case in a process of its own: settings are read once, at start."""
    done = subprocess.run(
        [sys.executable, __file__, "--case", name, str(out)],
        env={**os.environ, "PYTORCH_CUDA_ALLOC_CONF": CASES[name][0]},
        capture_output=True,
        text=True,
        check=False,
    )
    facts = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"failed": done.stderr[-2000:]}
    print(name, facts, flush=True)
    return name, facts


def record(name: str, out: Path) -> None:
    """Run one case and write its snapshot."""
    import torch

    conf, limit_gib, options = CASES[name]
    rng = random.Random(name)
    torch.cuda.init()
    total = torch.cuda.mem_get_info()[1]
    if limit_gib is not None:
        torch.cuda.set_per_process_memory_fraction(limit_gib * GIB / total)
    torch.empty(4, dtype=torch.uint8, device="cuda")

    work = Workload(torch, rng, (limit_gib or 6) * GIB * options.get("pressure", 0.97), options)
    if options.get("fill"):
        work.fill_card()
    if options.get("late"):
        work.run(800)
    torch.cuda.memory._record_memory_history(
        context="all" if options.get("frames") else None, stacks="python", max_entries=options.get("entries", 100_000)
    )
    start = torch.cuda.memory_stats()
    torch.cuda.reset_peak_memory_stats()
    work.run(1600)
    if options.get("toggle"):
        torch.cuda.memory._set_allocator_settings("expandable_segments:False")
        work.run(300)
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
        work.run(300)
    stats = torch.cuda.memory_stats()
    snapshot = torch.cuda.memory._snapshot()
    with gzip.open(out / f"stress-{name}.pickle.gz", "wb", compresslevel=9) as file:
        pickle.dump(snapshot, file, protocol=4)
    facts = {
        "conf": conf,
        "torch": torch.__version__,
        "total_bytes": total,
        "properties_total_bytes": torch.cuda.get_device_properties(0).total_memory,
        "limit_bytes": None if limit_gib is None else int(limit_gib * GIB / total * total),
        "retries": stats["num_alloc_retries"] - start["num_alloc_retries"],
        "ooms": stats["num_ooms"] - start["num_ooms"],
        "peak_reserved_bytes": stats["reserved_bytes.all.peak"],
        "peak_allocated_bytes": stats["allocated_bytes.all.peak"],
        "reserved_bytes": stats["reserved_bytes.all.current"],
        "allocated_bytes": stats["allocated_bytes.all.current"],
        "events": len(snapshot["device_traces"][0]),
    }
    print(json.dumps(facts))


class Workload:
    """Random requests of recurring and of odd sizes, freed in random order, around a target of live bytes."""

    def __init__(self, torch, rng, target_bytes, options):
        self.torch, self.rng, self.target_bytes, self.options = torch, rng, target_bytes, options
        self.live = []
        self.live_bytes = 0
        self.palette = [self._odd_size() for _ in range(24)]
        self.streams = [torch.cuda.Stream() for _ in range(2)] if options.get("streams") else []

    def _odd_size(self):
        return int(2 ** self.rng.uniform(6, 28.5))

    def fill_card(self):
        """Leave about 6 GiB of the card."""
        free = self.torch.cuda.mem_get_info()[0]
        self.ballast = self.torch.empty(free - 6 * GIB, dtype=self.torch.uint8, device="cuda")

    def run(self, steps):
        """Allocate while below the target, free while above, with an empty_cache now and then."""
        for _ in range(steps):
            if self.rng.random() < 0.008:
                self.torch.cuda.empty_cache()
            if self.live and self.rng.random() < (0.6 if self.live_bytes > self.target_bytes else 0.35):
                self._free()
            else:
                self._allocate()

    def _allocate(self):
        size = self.rng.choice(self.palette) if self.rng.random() < 0.7 else self._odd_size()
        try:
            self.live.append(self._tensor(size))
            self.live_bytes += size
        except self.torch.OutOfMemoryError:
            for _ in range(min(5, len(self.live))):
                self._free()

    def _tensor(self, size):
        if not self.streams or self.rng.random() < 0.4:
            return self.torch.empty(size, dtype=self.torch.uint8, device="cuda")
        home, other = self.rng.sample(self.streams, 2)
        with self.torch.cuda.stream(home):
            tensor = self.torch.empty(size, dtype=self.torch.uint8, device="cuda")
        if self.rng.random() < 0.6:
            with self.torch.cuda.stream(other):
                self.torch.cuda._sleep(self.rng.randrange(1, 4_000_000))
                tensor.record_stream(other)
        return tensor

    def _free(self):
        at = self.rng.randrange(len(self.live))
        self.live[at], self.live[-1] = self.live[-1], self.live[at]
        self.live_bytes -= self.live.pop().numel()


if __name__ == "__main__":
    if sys.argv[1] == "--case":
        record(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
