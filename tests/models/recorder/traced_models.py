"""Small models, traced once for all tests of a session, each in a process of its own."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

SOURCE = Path(__file__).parents[3] / "src"
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZES = {
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 8000,
    "max_position_embeddings": 2048,
    **TOKENS,
}
CONFIGS = {
    "llama": {"model_type": "llama", **SIZES},
    "qwen3": {"model_type": "qwen3", "head_dim": 64, "tie_word_embeddings": True, **SIZES},
    "olmoe": {"model_type": "olmoe", "num_experts": 8, "num_experts_per_tok": 2, **SIZES},
    "falcon": {"model_type": "falcon", "alibi": False, **SIZES},
    "gemma4": {
        "model_type": "gemma4_text",
        "head_dim": 64,
        "global_head_dim": 128,
        "hidden_size_per_layer_input": 0,
        "enable_moe_block": True,
        "num_experts": 8,
        "top_k_experts": 2,
        "moe_intermediate_size": 256,
        **SIZES,
    },
    "gemma4 with inputs": {
        "model_type": "gemma4_text",
        "head_dim": 64,
        "global_head_dim": 128,
        "hidden_size_per_layer_input": 64,
        "vocab_size_per_layer_input": 8000,
        **SIZES,
    },
    "granite_swa": {"model_type": "granite_swa", **SIZES},
    "bloom": {"model_type": "bloom", "hidden_size": 512, "n_layer": 2, "n_head": 8, "vocab_size": 8000},
    "deepseek_v32": {
        "model_type": "deepseek_v32",
        "q_lora_rank": 96,
        "kv_lora_rank": 64,
        "qk_rope_head_dim": 32,
        "qk_nope_head_dim": 32,
        "v_head_dim": 64,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 256,
        "index_topk": 64,
        "n_group": 1,
        "topk_group": 1,
        **SIZES,
        "num_key_value_heads": 8,
    },
    "nemotron": {"model_type": "nemotron", "hidden_act": "relu2", **SIZES},
}


PLAIN = "bf16, autocast"
# Asked for by the tests that `make test` runs: importing transformers takes longer than all of them.
_TOGETHER = (
    ("llama",),
    ("llama", "fp32, autocast"),
    ("qwen3",),
    ("olmoe",),
    ("falcon",),
    ("gemma4 with inputs",),
    ("granite_swa",),
    ("bloom",),
)
_TRACE = """
import json, sys
from vramwise.models.recorder.document import document
json.dump([document(config, modes) for config, modes in json.load(sys.stdin)], open(sys.argv[1], "w"))
"""


def trace_of(name, *modes):
    """The trace of one of the models, in these precisions."""
    asked = (name, *modes)
    return _traces(_TOGETHER)[_TOGETHER.index(asked)] if asked in _TOGETHER else _traces((asked,))[0]


@cache
def _traces(asked):
    """Several of them, made in one process."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "trace.json"
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", _TRACE, str(out)],
            input=json.dumps([(CONFIGS[name], modes or [PLAIN]) for name, *modes in asked]),
            capture_output=True,
            text=True,
            env={"PYTHONPATH": str(SOURCE), "PATH": "", "HOME": folder, "HF_HUB_OFFLINE": "1"},
            timeout=300,
        )
        assert done.returncode == 0, done.stderr[-500:]
        return json.loads(out.read_text())
