"""Traces a live model of a class that nobody described: its code on fake tensors, in this process.

The class builds a second model without values, so nothing of the live one is run or changed. Its code is already
running here, so it is not confined as code from a model's folder is.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.models.traces import model_from_trace
from vramwise.training.live.model import SOURCE, base_dtype
from vramwise.types import ModelSpec


def traced(base: Any, name: str) -> ModelSpec:
    """Return the model that the class's own code computes. Raises VramwiseError if it cannot be traced."""
    text = base.config.to_json_string(use_diff=False)
    half = "float32" not in str(base_dtype(base))
    key = (type(base), text, half)
    if key not in _made:
        _made[key] = _trace(copy.deepcopy(base.config), type(base), text, half=half)
    return model_from_trace(_made[key], name=name, source=SOURCE)


# The traces of this process, by class, config and dtype: a search asks often.
_made: dict[tuple[type, str, bool], dict[str, Any]] = {}


def _trace(config: Any, kind: type, text: str, *, half: bool) -> dict[str, Any]:
    import torch

    # Late: the recorder needs torch and transformers 5.
    from vramwise.models.recorder.document import document

    modes = [f"{'bf16' if half else 'fp32'}{amp}" for amp in (", autocast", "")]
    distribution = torch.distributions.Distribution
    validates = distribution._validate_args
    try:
        with torch.random.fork_rng(devices=[]):
            found = document(json.loads(text), modes, made=(config, kind))
    except Exception as error:  # the model's own code
        raise VramwiseError(f"its code could not be traced: {type(error).__name__}: {str(error)[:120]}") from error
    finally:
        distribution.set_default_validate_args(validates)
    return dict(json.loads(json.dumps(found)))
