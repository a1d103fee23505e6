"""Axolotl's own rules of one condition and one sentence: shapes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from vramwise.facts.attention import supports_packing
from vramwise.rules.base import safe, set_key, unsafe
from vramwise.rules.rows import Case, Said, row
from vramwise.types import RunSpec, Severity

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


_FLATTENING = "batch_flattening"


def _flattened(when: Callable[[RunSpec], object], message: Said[str], severity: Severity = Severity.ERROR) -> Case:
    return Case(
        when=lambda run: run.config.get(_FLATTENING) is True and when(run),
        severity=severity,
        message=message,
        fix=safe("Let Axolotl decide: batch_flattening auto", set_key(_FLATTENING, "auto")),
    )


batch_flattening_misused = _row(
    id="batch-flattening-misused",
    also=(Severity.WARNING,),
    text="""Batch flattening where it cannot work or has nothing to do.

    `batch_flattening: true` joins the rows of a micro-batch into one without padding. That needs a backend that knows
    where samples begin (flash attention, flex, xformers, sage), and rows that are not packed already: Axolotl refuses
    the rest. With `micro_batch_size: 1` there is nothing to join. With Liger's GRPO loss only the scoring pass is
    flattened.

    `batch_flattening: auto` turns itself on only where it works, and computes the same loss.
    """,
    bad="batch_flattening: true\nattn_implementation: sdpa\nmicro_batch_size: 4\n",
    good="batch_flattening: true\nattn_implementation: flash_attention_2\nmicro_batch_size: 4\n",
    key=_FLATTENING,
    cases=(
        _flattened(
            lambda run: not supports_packing(run.kernels.attn_implementation),
            lambda run: (
                f"{_FLATTENING}: true under {run.kernels.attn_implementation} attention is refused: the backend cannot "
                "tell joined rows apart"
            ),
        ),
        _flattened(
            lambda run: run.shapes.sample_packing,
            f"{_FLATTENING}: true with sample_packing: true is refused: packed rows are joined already",
        ),
        _flattened(
            lambda run: run.batch.micro_batch_size == 1,
            f"{_FLATTENING}: true with micro_batch_size 1 has no effect: there is one row, nothing to join",
            Severity.WARNING,
        ),
        Case(
            when=lambda run: run.config.get(_FLATTENING) and run.config.get("trl.use_liger_loss"),
            severity=Severity.WARNING,
            message=(
                f"{_FLATTENING} with trl.use_liger_loss: only the scoring pass is flattened, the training pass stays "
                "padded"
            ),
        ),
    ),
)
