"""torch-compile-options-misused"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity, join_key

_KEY = "torch_compile_options"
# Axolotl 0.19, utils/schemas/enums.py
_ALLOWED = frozenset(
    {
        "coordinate_descent_tuning",
        "coordinate_descent_check_all_directions",
        "shape_padding",
        "epilogue_fusion",
        "max_autotune_gemm",
        "fx_graph_cache",
        "assume_aligned_inputs",
        "comprehensive_padding",
        "decompose_mem_bound_mm",
        "triton.cudagraphs",
    }
)


@rule(
    id="torch-compile-options-misused",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="config",
    bad="base_model: meta-llama/Llama-3.2-1B\ntorch_compile_options:\n  shape_padding: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\ntorch_compile: true\ntorch_compile_options:\n  shape_padding: true\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`torch_compile_options` is set without `torch_compile`, or with an option that Axolotl refuses.

    The options set flags of torch's inductor and have no effect on a model that is not compiled, so Axolotl stops. It
    accepts ten flags and refuses any other. With `torch_compile: auto` on a torch before 2.5.1 nothing is compiled, and
    Axolotl drops the options with a warning.
    """
    options = run.config.get(_KEY)
    if not isinstance(options, dict):
        return
    for name in options:
        if name not in _ALLOWED:
            key = join_key((_KEY, name))
            yield Hit(
                key=key,
                message=f"Axolotl refuses {name!r} in {_KEY}: it is not one of the {len(_ALLOWED)} supported flags",
                fix=unsafe(f"Remove {name}", delete_key(key)),
            )
    if run.kernels.torch_compile:
        return
    if run.config.get("torch_compile") == "auto":
        yield Hit(
            severity=Severity.WARNING,
            key=_KEY,
            message=f"torch_compile: auto does not compile on torch {_version(run)}: {_KEY} is dropped",
            fix=safe(f"Remove {_KEY}, which is dropped", delete_key(_KEY)),
        )
        return
    yield Hit(
        key=_KEY,
        message=f"Axolotl refuses {_KEY} while torch_compile is off",
        fix=unsafe("Compile the model: torch_compile: true", insert_key("torch_compile", True, beside=_KEY)),
    )


def _version(run: RunSpec) -> str:
    return ".".join(str(part) for part in run.target.torch)
