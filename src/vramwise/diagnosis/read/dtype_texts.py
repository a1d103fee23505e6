"""The texts of dtype failures, and of others that come from the same settings: who raises them and when.

Seen in torch, transformers, accelerate, bitsandbytes, FlashAttention, DeepSpeed, torchao, Transformer Engine and
trainers. An exception stands at the start of its line or behind its name; anything else is a mention.
"""

from __future__ import annotations

import re

from vramwise.diagnosis.read.texts import failure

_DTYPE = r"[\w:.]{1,40}"
# What comes after the shape may be cut off.
_METADATA = (
    r"metadata: \{'shape': torch\.Size\(\[(?P<shape>[\d, ]{0,80})\]\)(?:, 'dtype': torch\.(?P<dtype>\w{1,40}),)?"
)
_ONE = re.compile(
    r"\b(?:c10::|at::|torch\.(?:cuda\.)?)?(Half|Float|BFloat16|Double|float16|bfloat16|float32|float64|float|double|half)"
    r"(?:Tensor)?\b"
)
_COMPARED = re.compile(r"\b(?:same|match|expected|expects?|requires)\b|!=", re.IGNORECASE)
_SAME_AS = {"half": "float16", "float": "float32", "double": "float64"}

DTYPE_TEXTS = (
    # the gradient scaler
    failure("unscale-fp16", "Attempting to unscale FP16 gradients"),
    failure(
        "unscale-bf16",
        "_amp_foreach_non_finite_check_and_unscale",
        r"\"?_amp_foreach_non_finite_check_and_unscale_\w{1,20}\"? not implemented for 'BFloat16'",
    ),
    # operands of two dtypes
    failure(
        "mixed-operands",
        "to have the same dtype",
        rf"expected (?:mat1 and mat2|m1 and m2|self and mat2) to have the same dtype, but got: "
        rf"(?P<left>{_DTYPE}) != (?P<right>{_DTYPE})",
    ),
    failure(
        "mixed-operands",
        "must have the same dtype",
        rf"(?:mat1 and mat2|self and mat2|query, key, and value|Query, key, value) must have the same dtype,? "
        rf"but got:? (?P<left>{_DTYPE})(?: and|,) (?P<right>{_DTYPE})",
    ),
    failure(
        "mixed-operands",
        "expected scalar type",
        r"expected scalar type (?P<left>Half|Float|BFloat16) but found (?P<right>Half|Float|BFloat16)",
    ),
    failure("mixed-operands", "Query/Key/Value should either all have the same dtype"),
    # operations without a kernel for a dtype
    failure(
        "dtype-not-implemented",
        "not implemented for '",
        r"\"(?P<op>[\w:]{1,120})\" not implemented for '(?P<dtype>Half|BFloat16|Float8_\w{1,12})'",
    ),
    failure("numpy-bf16", "Got unsupported ScalarType BFloat16"),
    # fp16's range
    failure("fp16-overflow", "Current loss scale already at minimum"),
    failure(
        "fp16-overflow", "without overflow", r"value cannot be converted to type (?:at|c10)::Half without overflow"
    ),
    # attention kernels
    failure(
        "flash-dtype",
        "FlashAttention only support",
        r"FlashAttention only supports? fp16(?:,| and) bf16(?:, and fp8_e4m3)? data type",
    ),
    # FlashAttention 1 states what it checked.
    failure("flash-dtype-or-card", "Expected q_dtype ==", r"Expected q_dtype == torch::kFloat16 \|\|"),
    failure("flash-card", "FlashAttention only supports", r"FlashAttention only supports \w+ GPUs or newer"),
    # bf16 on a card without it
    failure("bf16-unsupported", "support bf16/gpu", r"Your setup doesn't support bf16/(?:gpu|cpu|npu|mps)"),
    failure("bf16-unsupported", "tf32 requires", r"-{0,2}tf32 requires Ampere or a newer GPU"),
    failure("bf16-unsupported", "does not support bfloat16", r"Current CUDA Device does not support bfloat16"),
    failure("bf16-unsupported", "Bfloat16 is only supported", r"Bfloat16 is only supported on GPUs with compute cap"),
    failure(
        "bf16-unsupported",
        "bf16 mixed precision",
        r"bf16 mixed precision (?:training )?requires .{0,40}(?:GPU|XPU|device)",
    ),
    # sharding
    failure(
        "fsdp-mixed-dtypes",
        "Must flatten tensors with uniform dtype",
        r"Must flatten tensors with uniform dtype but got (?P<left>torch\.\w+) and (?P<right>torch\.\w+)",
    ),
    failure(
        "fsdp2-mixed-dtypes",
        "FSDP expects uniform original parameter dtype",
        r"FSDP expects uniform original parameter dtype but got \{(?P<left>torch\.\w+), (?P<right>torch\.\w+)",
    ),
    failure("fsdp-mixed-frozen", "Must flatten tensors with uniform `requires_grad`"),
    # checkpointing
    failure(
        "recompute-differs",
        "have different metadata",
        r"(?:torch\.utils\.checkpoint: )?Recomputed values for the following tensors have different metadata",
    ),
    failure(
        "recompute-count",
        "A different number of tensors was saved",
        r"(?:torch\.utils\.checkpoint: )?A different number of tensors was saved during the original forward",
    ),
    failure(
        "recompute-metadata",
        "recomputed metadata",
        rf"recomputed {_METADATA}",
        anywhere=True,
    ),
    failure(
        "saved-metadata",
        "saved metadata",
        rf"saved {_METADATA}",
        anywhere=True,
    ),
    # fp8
    failure(
        "fp8-alignment",
        "to be divisible by",
        r"Expected trailing dimension of mat\d to be divisible by (?P<divisor>\d+) but got mat\d shape: "
        r"\((?P<shape>[\dx]{1,40})\)",
    ),
    failure(
        "fp8-alignment",
        "divisible by",
        r"(?:MXFP8|FP8|NVFP4|MXFP4)\w{0,40} requires? tensor dims? that are divisible by (?P<divisor>\d+) "
        r"\(got shape=\((?P<shape>[\d, ]{1,60})\)\)",
    ),
    failure(
        "fp8-alignment",
        "divisible by 16",
        r"FP8 execution requires .{0,120}divisible by (?P<divisor>\d+)",
    ),
    # settings that fail late
    failure("auto-batch-exhausted", "No executable batch size found", r"No executable batch size found, reached zero"),
    failure("offload-tracker", "Backward pass should have cleared tracker of all tensors"),
    failure("optimizer-unhandled", "Unhandled optimizer", r"Unhandled optimizer: (?P<optimizer>[\w\-]{1,60})"),
    failure(
        "paged-unsupported",
        "operation not supported at line",
        r"Error operation not supported at line \d+ in file .{0,300}(?:pythonInterface|ops|bitsandbytes)",
        anywhere=True,
    ),
    failure(
        "bnb-8bit-save",
        "undo_layout(",
        r"^[\W]*self\.weight\.data = undo_layout\(self\.state\.CxB, self\.state\.tile_indices\)",
        anywhere=True,
    ),
)


def two_dtypes(text: str) -> dict[str, str]:
    """Of an exception that compares dtypes, the two that differ; empty for any other.

    torch has dozens of such messages (index_add_, index_put_, attention masks, losses); all name both dtypes.
    """
    found = {_canonical(match[1]): match[0] for match in reversed(list(_ONE.finditer(text[:600])))}
    if len(found) != 2 or not _COMPARED.search(text[:600]):
        return {}
    right, left = found.values()
    return {"left": left, "right": right}


def _canonical(name: str) -> str:
    return _SAME_AS.get(name.lower(), name.lower())
