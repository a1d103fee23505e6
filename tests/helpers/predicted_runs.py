"""A model folder, and what `predict` gives as JSON."""

import json

MODEL = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
}


def predicted(vramwise, *words):
    result = vramwise("predict", *words, "--format", "json")
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)
