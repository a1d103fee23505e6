"""What to collect if a diagnosis is not certain: among others, the lines that record a memory snapshot."""

from __future__ import annotations

from vramwise.actions import action

RECORD_LINES = (
    "import torch",
    "torch.cuda.memory._record_memory_history(max_entries=200_000)",
    'torch._C._cuda_attach_out_of_memory_observer(lambda *_: torch.cuda.memory._dump_snapshot("snapshot.pickle"))',
)


_ALL_OUTPUT = "keep the full output of every rank: `… 2>&1 | tee train.log`"
_OTHER_FAILURES = {
    "nccl-timeout": (
        "find the rank that was late: look for the first error in the output of every rank and node",
        "run again with TORCH_NCCL_TRACE_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1: torch then records what "
        "each rank was waiting for",
    ),
    "exception": ("read the traceback above it: this is not a memory failure, so a snapshot would not help",),
}


def next_steps(*, has_config: bool, has_snapshot: bool, failed: bool) -> tuple[str, ...]:
    """Return what would tell more about an out-of-memory, cheapest first."""
    steps = []
    if not failed:
        steps.append(_ALL_OUTPUT)
    if not has_config:
        steps.append(action("give the config"))
    if not has_snapshot:
        steps.append(
            "record a snapshot: put these lines before training starts, run again, then "
            f"{action('give the snapshot')}\n    " + "\n    ".join(RECORD_LINES)
        )
    return tuple(steps)


def other_steps(kind: str) -> tuple[str, ...]:
    """Return what would tell more about a failure that is not about memory."""
    return _OTHER_FAILURES.get(kind, (_ALL_OUTPUT,))
