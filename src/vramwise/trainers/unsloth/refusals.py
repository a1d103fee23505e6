"""What Unsloth refuses before training: precision flags and dtypes that conflict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vramwise.rules.base import Hit
from vramwise.trainers.names import suggest
from vramwise.trainers.unsloth.keys import facts, is_cli
from vramwise.types import RunSpec

_WIDTHS = ("load_in_4bit", "load_in_8bit", "load_in_16bit", "load_in_fp8")


def refusals(run: RunSpec) -> Iterator[Hit]:
    """Yield every refusal that applies to the training."""
    yield from _strange(run)
    written = [key for key in _WIDTHS if run.config.get(key)]
    if len(written) > 1 and not run.config.get("full_finetuning"):
        yield Hit(f"{' and '.join(written)} are all on: at most one width can be", written[1])
    bf16, fp16 = run.config.get("bf16") is True, run.config.get("fp16") is True
    full = run.config.get("full_finetuning")
    if fp16 and not bf16 and run.precision.weights_dtype == "bf16" and not full:
        yield Hit("fp16 is on, and the weights are in bfloat16: Unsloth stops. Set bf16 instead", "fp16")
    if bf16 and run.precision.weights_dtype == "fp16" and not full:
        yield Hit("bf16 is on, and the weights are in float16: Unsloth stops. Set fp16 instead", "bf16")
    if run.config.get("qat_scheme") and full and run.adapter.kind is not None:
        yield Hit(
            "qat_scheme in from_pretrained is for full_finetuning; give it to get_peft_model for LoRA", "qat_scheme"
        )


def _strange(run: RunSpec) -> Iterator[Hit]:
    """Yield keys of the command's file that none of its sections has."""
    document = run.config.document
    if not is_cli(document):
        return
    sections = facts(run.target.stack).get("sections", {})
    for section, known in sections.items():
        block = document.values.get(section)
        for key in block if isinstance(block, Mapping) else ():
            if key not in known:
                meant = suggest(str(key), known, limit=1)
                more = f": did you mean {meant[0]}?" if meant else ""
                yield Hit(f"unknown key '{key}' in section '{section}': the command stops{more}", f"{section}.{key}")
