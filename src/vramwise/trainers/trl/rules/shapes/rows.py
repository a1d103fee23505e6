"""TRL's own rules of one condition and one sentence: shapes."""

from __future__ import annotations

from functools import partial

from vramwise.rules.rows import row
from vramwise.types import Severity

_row = partial(row, topic="shapes")

max_length_default = _row(
    id="max-length-default",
    severity=Severity.INFO,
    text="""`max_length` is not set, so samples are cut to 1024 tokens.

    Chats and documents are often longer, and their end, the answer, is cut: memory looks fine, but the model learns
    from truncated samples. Set the length you want, even if it is 1024.
    """,
    bad="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\n",
    good="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\nmax_length: 1024\n",
    beyond_trainer="TRL cuts without warning.",
    when=lambda run: (
        "max_length" not in run.config and run.objective.generation_rows is None and run.objective.rl != "distillation"
    ),
    field="sequence_len",
    message=lambda run: (
        f"max_length is not set, so it is {run.shapes.sequence_len}: longer samples are cut at the end without warning"
    ),
)

max_length_unlimited = _row(
    id="max-length-unlimited",
    severity=Severity.WARNING,
    text="""`max_length: null` cuts nothing: the longest sample of the data decides the memory.

    The run fails at the step that reaches it, possibly hours in, because rows are drawn at random. Set a length that
    covers nearly all samples. With local data, `vramwise predict` shows what its lengths need; without, it says up to
    which length rows fit.
    """,
    bad="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\nmax_length: null\n",
    good="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\nmax_length: 4096\n",
    beyond_trainer="TRL does not limit rows; one long sample decides whether the run survives.",
    when=lambda run: (
        "max_length" in run.config and run.config.get("max_length") is None and run.objective.generation_rows is None
    ),
    field="sequence_len",
    message=lambda run: (
        "max_length is null: no sample is cut, so the longest one decides whether the run fits "
        f"({run.shapes.sequence_len:,} tokens are assumed without data)"
    ),
)
