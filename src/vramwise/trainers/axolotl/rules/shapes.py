"""Axolotl's own rules about packing and the shapes of batches."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.facts.attention import supports_packing
from vramwise.rules.base import Hit, rule, safe, set_key, unsafe
from vramwise.rules.rows import row
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

# Axolotl's own limit for a 1B model on a card with 24 GB.
_TOKEN_SAMPLES = 20_000


@rule(
    id="ebft-strided-too-long",
    severity=Severity.WARNING,
    bad="rl: ebft\nsequence_len: 4096\nebft:\n  mode: strided\n  n_samples_per_prompt: 4\n",
    good="rl: ebft\nsequence_len: 2048\nebft:\n  mode: strided\n  n_samples_per_prompt: 4\n",
)
def ebft_strided_too_long(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Strided EBFT on long sequences needs many more tokens per step than `sequence_len`.

    Strided mode appends a generated block to the sequence at every stride and repeats the result for each sample, so a
    step has far more tokens than `sequence_len`. Axolotl warns above 20,000 token-samples, its limit for a 1B model on
    24 GB. Lower sequence_len or n_samples_per_prompt, or use a larger stride.
    """
    if run.objective.rl != "ebft" or run.config.get("ebft.mode") != "strided":
        return
    samples, generated, stride, context = (
        _whole(run, key, default)
        for key, default in (("n_samples_per_prompt", 4), ("generate_max_len", 8), ("stride", 8), ("context_length", 8))
    )
    if stride < 1:
        return
    blocks = (run.shapes.sequence_len - generated - context) // stride + 1
    tokens = run.shapes.sequence_len + blocks * generated
    if tokens * samples > _TOKEN_SAMPLES:
        yield Hit(
            f"strided EBFT: (length {run.shapes.sequence_len} + {blocks} blocks × {generated}) × {samples} "
            f"samples = {tokens * samples} token-samples per step, above {_TOKEN_SAMPLES}: a 1B model needs more "
            "than 24 GB",
            "sequence_len",
        )


def _whole(run: RunSpec, key: str, default: int) -> int:
    value = run.config.get(f"ebft.{key}", default)
    return value if isinstance(value, int) else default


_GRAPHS = r"torch_compile_options.triton\.cudagraphs"

cudagraphs_with_packing = row(
    id="cudagraphs-with-packing",
    severity=Severity.WARNING,
    text="""CUDA graphs together with sample packing.

    A CUDA graph is recorded for fixed shapes and replayed. Each packed row holds a different number of samples, so the
    sample boundaries change shape from step to step. Graphs are then recorded again and again, or abandoned. Each
    recording keeps its own memory pool.

    Turn the graphs off (compilation stays on, results are the same), or train unpacked and padded.
    """,
    bad="sample_packing: true\ntorch_compile: true\ntorch_compile_options:\n  triton.cudagraphs: true\n",
    good="sample_packing: false\ntorch_compile: true\ntorch_compile_options:\n  triton.cudagraphs: true\n",
    when=lambda run: run.shapes.sample_packing and run.kernels.torch_compile and run.config.get(_GRAPHS),
    key=_GRAPHS,
    message="triton.cudagraphs with sample_packing: packed rows change shape, so graphs are recorded repeatedly",
    fix=safe("Turn CUDA graphs off", set_key(_GRAPHS, False)),
)

packing_multiple_streams = row(
    id="packing-multiple-streams",
    text="""Sample packing over several streamed datasets.

    Axolotl packs only a single stream. With several it stops with NotImplementedError before training. Merge the
    datasets into one, load them without `streaming`, or train unpacked (then set `pad_to_sequence_len: true` to keep
    shapes constant).
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
        f"sample_packing with streaming over {len(run.config.get('datasets'))} datasets: Axolotl packs only one stream"
    ),
    fix=unsafe("Train unpacked", set_key("sample_packing", False)),
)


_FLATTENING = "batch_flattening"


@rule(
    id="batch-flattening-misused",
    also=(Severity.WARNING,),
    bad="batch_flattening: true\nattn_implementation: sdpa\nmicro_batch_size: 4\n",
    good="batch_flattening: true\nattn_implementation: flash_attention_2\nmicro_batch_size: 4\n",
)
def batch_flattening_misused(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Batch flattening is on with settings that do not support it, or has no effect.

    `batch_flattening: true` joins the rows of a micro-batch into one without padding. It needs an attention backend
    that knows where samples begin (flash attention, flex, xformers, sage) and rows that are not already packed. Axolotl
    refuses anything else. With `micro_batch_size: 1` there is nothing to join. With Liger's GRPO loss only the scoring
    pass is flattened.

    `batch_flattening: auto` turns flattening on only if it works, and computes the same loss.
    """
    if not run.config.get(_FLATTENING):
        return
    if run.config.get(_FLATTENING) is True:
        auto = safe("Let Axolotl decide: batch_flattening: auto", set_key(_FLATTENING, "auto"))
        refused, attention = f"Axolotl refuses {_FLATTENING}: true with", run.kernels.attn_implementation
        if not supports_packing(attention):
            message = f"{refused} {attention} attention: the backend cannot tell joined rows apart"
            yield Hit(message, _FLATTENING, auto)
        if run.shapes.sample_packing:
            yield Hit(f"{refused} sample_packing: true: packed rows are already joined", _FLATTENING, auto)
        if run.batch.micro_batch_size == 1:
            message = f"{_FLATTENING}: true with micro_batch_size 1 has no effect: there is only one row"
            yield Hit(message, _FLATTENING, auto, severity=Severity.WARNING)
    if run.config.get("trl.use_liger_loss"):
        message = (
            f"{_FLATTENING} with trl.use_liger_loss: only the scoring pass is flattened; the training pass stays padded"
        )
        yield Hit(message, _FLATTENING, severity=Severity.WARNING)
