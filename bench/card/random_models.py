"""Model folders with random weights of real shapes, and one tokenizer for all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_TURN = "{{ m['role'] }}: {{ m['content'] }}{{ eos_token }}"


def make_models(folder: Path, shapes: dict[str, dict[str, Any]], words: str, device: str | None = None) -> None:
    """A folder a shape (transformers' words for it), those that are not there yet; `words` train the tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = _tokenizer(words)
    for name, shape in shapes.items():
        if (folder / name).exists():
            continue
        spec = dict(shape)
        architectures, outliers = spec.pop("architectures"), spec.pop("outlier_columns", 0)
        config = AutoConfig.for_model(spec.pop("model_type"), **spec)
        config.architectures = architectures
        config.dtype = "bfloat16"
        with torch.device(device), no_init_weights():
            model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        with torch.no_grad():
            for label, parameter in model.named_parameters():
                parameter.fill_(1.0) if "norm" in label else parameter.normal_(0, 0.02)
                if outliers:
                    _make_outliers(label, parameter, outliers)
        model.tie_weights()
        part = folder / f"{name}.part"
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)
        _readable_by_any_transformers(part / "tokenizer_config.json")
        part.rename(folder / name)
        del model
        torch.cuda.empty_cache()


def _make_outliers(label: str, parameter: Any, columns: int) -> None:
    """Inputs of 6 and more in so many columns, and in no others, as trained models have them (LLM.int8)."""
    if "layernorm" in label:
        parameter[:columns] = 12.0
    elif label.endswith(("gate_proj.weight", "up_proj.weight")):
        parameter.mul_(0.35)
        parameter[:columns].mul_(8.0)
    elif label.endswith("v_proj.weight"):
        parameter.mul_(0.5)


def _tokenizer(words: str) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tok = Tokenizer(models.BPE(unk_token=None))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    special = ["<s>", "</s>", "<pad>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=6000, special_tokens=special, initial_alphabet=alphabet)
    tok.train_from_iterator([words], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tok, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    fast.chat_template = "{% for m in messages %}" + _TURN + "{% endfor %}"
    return fast


def _readable_by_any_transformers(file: Path) -> None:
    """Transformers 5 writes a class that 4 does not have."""
    told = json.loads(file.read_text())
    file.write_text(json.dumps({**told, "tokenizer_class": "PreTrainedTokenizerFast"}))
