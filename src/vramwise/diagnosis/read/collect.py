"""What to collect where a diagnosis is not sure: the exact lines that record a memory snapshot."""

from __future__ import annotations

RECORD_LINES = (
    "import torch",
    "torch.cuda.memory._record_memory_history(max_entries=200_000)",
    'torch._C._cuda_attach_out_of_memory_observer(lambda *_: torch.cuda.memory._dump_snapshot("snapshot.pickle"))',
)


def next_steps(*, has_config: bool, has_snapshot: bool, failed: bool) -> tuple[str, ...]:
    """What would tell more, the cheapest first."""
    steps = []
    if not failed:
        steps.append("keep all of the output, of every rank: `… 2>&1 | tee train.log`")
    if not has_config:
        steps.append("give the config: `vramwise diagnose train.log --config config.yml`")
    if not has_snapshot:
        steps.append(
            "record a snapshot: put these lines before training starts, run again, then add "
            "--snapshot snapshot.pickle\n    " + "\n    ".join(RECORD_LINES)
        )
    return tuple(steps)
