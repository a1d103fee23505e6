"""Records attention calls and masks in a trace. The ghost run simulates the GPU's kernels and makes masks itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from vramwise.models.recorder.opaque import attention
from vramwise.models.recorder.recorder import Recorder

ATTENTION = "vramwise_trace"
MASK = "b:mask"  # name of the mask, used if the model's code works on it


class _Pass:
    """The pass that is being recorded."""

    def __init__(self, recorder: Recorder, rows: int, tokens: int) -> None:
        self.recorder = recorder
        self._shape = (rows, 1, tokens, tokens)
        self._mask: torch.Tensor | None = None
        self.always = ""  # "eager" or "masked" if the code always needs a mask

    def mask(self, dtype: torch.dtype) -> torch.Tensor:
        """Return a stand-in for the mask that the ghost run makes. It is created on first use."""
        if self._mask is None:
            self.recorder.paused += 1
            self._mask = torch.empty(self._shape, dtype=dtype)
            self.recorder.paused -= 1
            self.recorder.keep(self._mask, MASK)
        return self._mask


_under_way: list[_Pass] = []


def register_attention() -> None:
    """Make transformers call `_attend` for models that are built with `ATTENTION`."""
    from transformers.modeling_utils import AttentionInterface

    AttentionInterface.register(ATTENTION, _attend)


def _attend(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: Any = None, dropout: float = 0.0,
    sliding_window: int | None = None, softcap: Any = None, s_aux: Any = None, position_bias: Any = None, **_: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    if position_bias is not None and attention_mask is None and sliding_window:
        attention_mask = _under_way[-1].mask(torch.bool)
    grouped = attention_mask is None
    if position_bias is not None:  # as in transformers' sdpa function, which adds the causal mask to it
        from transformers.integrations.sdpa_attention import create_position_bias_mask

        attention_mask = create_position_bias_mask(position_bias, attention_mask, attention_mask is None, query, key)
    del position_bias
    out = attention(
        _under_way[-1].recorder,
        query,
        key,
        value,
        attention_mask,
        sliding_window,
        softcap,
        s_aux,
        dropout,
        grouped=grouped,
    )
    return out, None


@contextmanager
def attention_noted(recorder: Recorder, rows: int, tokens: int) -> Iterator[_Pass]:
    """Record where masks would be made, and the windows of attention calls other than `ATTENTION`.

    The ghost run makes masks itself, in the same place. The model's code gets a mask only if it always needs one.
    """
    from transformers import masking_utils
    from transformers.modeling_utils import AttentionInterface

    plain = getattr(masking_utils, "_preprocess_mask_arguments", None)
    interface = AttentionInterface.get_interface
    this = _Pass(recorder, rows, tokens)

    def marked(config: Any, inputs_embeds: Any, *args: Any, **kwargs: Any) -> Any:
        eager = config._attn_implementation == "eager"
        # models that work on the mask pass this argument to create_causal_mask
        always = sys._getframe(1).f_locals.get("allow_is_causal_skip") is False
        if not any(row["k"] == "mask" for row in recorder.instructions):
            recorder.instructions.append({"k": "mask", "i": [], "o": [], "x": []})
        if eager or always:
            this.always = "eager" if eager else "masked"
            return True, this.mask(inputs_embeds.dtype if eager else torch.bool), None, None, None, None, None
        assert plain is not None
        return plain(config, inputs_embeds, *args, **kwargs)

    def noted(self: Any, implementation: str, default: Any) -> Any:
        found = interface(self, implementation, default)
        if implementation == ATTENTION:
            return found

        def attend(*args: Any, **kwargs: Any) -> Any:
            window = kwargs.get("sliding_window")
            recorder.instructions.append({"k": "window", "i": [], "o": [], "x": [], "window": window})
            return found(*args, **kwargs)

        return attend

    _under_way.append(this)
    AttentionInterface.get_interface = noted
    if plain is not None:
        masking_utils._preprocess_mask_arguments = marked
    try:
        yield this
    finally:
        _under_way.pop()
        AttentionInterface.get_interface = interface
        if plain is not None:
            masking_utils._preprocess_mask_arguments = plain
