"""Axolotl's own rules of one condition and one sentence: shapes."""

from __future__ import annotations

from functools import partial

from vramwise.rules.base import safe, set_key, unsafe
from vramwise.rules.rows import row
from vramwise.types import Severity

_GRAPHS = r"torch_compile_options.triton\.cudagraphs"

_row = partial(row, topic="shapes")

cudagraphs_with_packing = _row(
    id="cudagraphs-with-packing",
    severity=Severity.WARNING,
    text="""CUDA graphs together with sample packing.

    A CUDA graph is recorded for fixed shapes and replayed. Packed rows hold another number of samples each time, so the
    sample boundaries change shape from step to step: graphs are recorded again and again, or given up. Each recording
    keeps a memory pool of its own.

    Turn the graphs off (compilation itself stays, results are the same), or train unpacked and padded.
    """,
    bad="sample_packing: true\ntorch_compile: true\ntorch_compile_options:\n  triton.cudagraphs: true\n",
    good="sample_packing: false\ntorch_compile: true\ntorch_compile_options:\n  triton.cudagraphs: true\n",
    when=lambda run: run.shapes.sample_packing and run.kernels.torch_compile and run.config.get(_GRAPHS),
    key=_GRAPHS,
    near=("torch_compile_options",),
    message="triton.cudagraphs with sample_packing: packed rows change shape, graphs are recorded anew",
    fix=safe("Turn CUDA graphs off", set_key(_GRAPHS, False)),
)

packing_multiple_streams = _row(
    id="packing-multiple-streams",
    text="""Sample packing over several streamed datasets.

    Axolotl packs a single stream; over several it stops with NotImplementedError before training. Merge the datasets
    into one, load them without `streaming`, or train unpacked (then set `pad_to_sequence_len: true` to keep shapes
    constant).
    """,
    bad=(
        "streaming: true\nmax_steps: 1000\nsample_packing: true\n"
        "datasets:\n  - path: one/data\n    type: alpaca\n  - path: other/data\n    type: alpaca\n"
    ),
    good=(
        "streaming: true\nmax_steps: 1000\nsample_packing: false\n"
        "datasets:\n  - path: one/data\n    type: alpaca\n  - path: other/data\n    type: alpaca\n"
    ),
    when=lambda run: (
        run.config.get("streaming") and run.shapes.sample_packing and len(run.config.get("datasets", ())) > 1
    ),
    key="sample_packing",
    message=lambda run: (
        f"sample_packing with streaming over {len(run.config.get('datasets'))} datasets: Axolotl packs one stream only"
    ),
    fix=unsafe("Train unpacked", set_key("sample_packing", False)),
)
