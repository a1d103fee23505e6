"""cudagraphs-with-packing"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, safe, set_key
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_KEY = r"torch_compile_options.triton\.cudagraphs"


@rule(
    id="cudagraphs-with-packing",
    severity=Severity.WARNING,
    topic="shapes",
    bad="sample_packing: true\ntorch_compile: true\ntorch_compile_options:\n  triton.cudagraphs: true\n",
    good="sample_packing: false\ntorch_compile: true\ntorch_compile_options:\n  triton.cudagraphs: true\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """CUDA graphs together with sample packing.

    A CUDA graph is recorded for fixed shapes and replayed. Packed rows hold another number of samples each time, so the
    sample boundaries change shape from step to step: graphs are recorded again and again, or given up. Each recording
    keeps a memory pool of its own.

    Turn the graphs off (compilation itself stays, results are the same), or train unpacked and padded.
    """
    if run.shapes.sample_packing and run.kernels.torch_compile and run.config.get(_KEY):
        yield Hit(
            key=_KEY,
            near=("torch_compile_options",),
            message="triton.cudagraphs with sample_packing: packed rows change shape, graphs are recorded anew",
            fix=safe("Turn CUDA graphs off", set_key(_KEY, False)),
        )
