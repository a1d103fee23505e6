"""Encoders: BERT and its kin, which read a row as a whole. Their parameters are those without a head.

A pooler is among them where the library builds it by default: heads for classes use it, heads for tokens do not.
"""

from __future__ import annotations

from vramwise.models.families.base import Block, Found
from vramwise.models.families.blocks import by_names
from vramwise.models.families.config_fields import Fields
from vramwise.models.families.parts import Parameter, Parts, linear
from vramwise.types import ModelSpec

_SIZES = ("type_vocab_size", "embedding_size")


def settles(fields: Fields, found: Found) -> Found:
    """Set the sizes of the tables before the blocks, and that no head for the vocabulary is counted."""
    narrow = fields.count("embedding_size")
    sizes = {
        "type_vocab_size": fields.count("type_vocab_size"),
        "embedding_size": narrow if narrow != found["hidden_size"] else 0,
        "relative_positions": _relative_rows(fields),
        "pooler": int(fields.flag("has_pooler")),
    }
    return {"sizes": tuple(sizes.items()), "tie_word_embeddings": True}


def _relative_rows(fields: Fields) -> int:
    """Return the rows of DeBERTa's table of distances."""
    if not fields.flag("relative_attention"):
        return 0
    longest = fields.get("max_relative_positions")
    most = longest if isinstance(longest, int) and longest > 0 else fields.integer("max_position_embeddings")
    buckets = fields.get("position_buckets")
    return 2 * (buckets if isinstance(buckets, int) and buckets > 0 else most)


def after_tables(model: ModelSpec) -> Parts:
    """Yield token types, the norm of the embeddings, and a projection of narrow ones."""
    narrow = model.size("embedding_size")
    width = narrow or model.hidden_size
    if model.size("type_vocab_size"):
        shape = (model.size("type_vocab_size"), width)
        yield Parameter("embeddings.token_type_embeddings.weight", shape, "embedding")
    yield from _norm("embeddings.LayerNorm", width)
    if narrow and model.model_type == "electra":
        yield from linear("embeddings_project", narrow, model.hidden_size, True)
    if narrow and model.model_type == "albert":
        yield from linear("encoder.embedding_hidden_mapping_in", narrow, model.hidden_size, True)


def plain_after_tables(model: ModelSpec) -> Parts:
    """ModernBERT: the norm alone, without a bias."""
    yield Parameter("embeddings.norm.weight", (model.hidden_size,), "norm")


def albert_layer(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    """Yield the one block in the order in which the library lists its parts."""
    parts: dict[str, list[Parameter]] = {}
    for parameter in by_names(model, block, sparse):
        parts.setdefault(parameter.name.rpartition(".")[0], []).append(parameter)
    query, key, value, out = block.attention
    up, down = block.plain_mlp
    after, last = block.norms
    for name in (last, query, key, value, out, after, up, down):
        yield from parts[name]


def modern_layer(model: ModelSpec, block: Block, layer: int) -> Parts:
    """Yield a block of ModernBERT: the first has no norm before its attention."""
    for parameter in by_names(model, block, False):
        if layer or not parameter.name.startswith(block.norms[0]):
            yield parameter


def modern(fields: Fields, found: Found) -> Found:
    """Set which layers of ModernBERT look at their surroundings only, and no head."""
    every = fields.integer("global_attn_every_n_layers")
    kinds = fields.texts("layer_types") or tuple(
        "sliding_attention" if layer % every else "full_attention" for layer in range(found["num_hidden_layers"])
    )
    window = fields.integer("local_attention") // 2 + 1
    return {"layer_types": kinds, "sliding_window": window, "tie_word_embeddings": True}


def after(model: ModelSpec, block: Block, start: str) -> Parts:
    """Yield the table of distances with its norm (DeBERTa), and the pooler."""
    if model.size("relative_positions"):
        shape = (model.size("relative_positions"), model.hidden_size)
        yield Parameter("encoder.rel_embeddings.weight", shape, "embedding")
        yield from _norm("encoder.LayerNorm", model.hidden_size)
    if model.size("pooler"):
        name = "pooler" if model.model_type == "albert" else "pooler.dense"
        yield from linear(name, model.hidden_size, model.hidden_size, True)


def _norm(name: str, width: int) -> Parts:
    for end in ("weight", "bias"):
        yield Parameter(f"{name}.{end}", (width,), "norm")
