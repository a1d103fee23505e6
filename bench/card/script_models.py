"""Models with random weights, tokenizers that fill the vocabulary: `python script_models.py FOLDER SHAPES.json cuda`.

Scripts resize embeddings to `len(tokenizer)`: it must be the model's own size.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

TURN = "{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]{% else %}{{ m['content'] }}{{ eos_token }}"
TEMPLATE = "{{ bos_token }}{% for m in messages %}" + TURN + "{% endif %}{% endfor %}"
SPECIAL = (
    *("<unk>", "<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("<|eot_id|>", "<|begin_of_text|>", "<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]"),
)


def tokenizer_of(words: str, size: int) -> Any:
    """Byte-level pairs learned from `words`, and unused tokens up to `size`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    learned = Tokenizer(models.BPE(unk_token=None))
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learned.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=4000, special_tokens=list(SPECIAL), initial_alphabet=alphabet)
    learned.train_from_iterator([words], trainer)
    told = json.loads(learned.to_str())
    vocabulary = told["model"]["vocab"]
    vocabulary |= {f"<unused{number}>": number for number in range(len(vocabulary), size)}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(told)),
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
    )
    fast.chat_template = TEMPLATE
    return fast


def main() -> None:
    """Those that are not there yet."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    folder, shapes, device = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()), sys.argv[3]
    rng = random.Random(4)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(4000)]
    text = " ".join(words)
    for name, shape in shapes.items():
        target = folder / name
        if (target / "model.safetensors.index.json").exists() or (target / "model.safetensors").exists():
            continue
        spec = dict(shape)
        architectures = spec.pop("architectures")
        config = AutoConfig.for_model(
            spec.pop("model_type"), **spec, bos_token_id=1, eos_token_id=2, pad_token_id=3, dtype="bfloat16"
        )
        config.architectures = architectures
        with torch.device(device), no_init_weights():
            model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        with torch.no_grad():
            for label, parameter in model.named_parameters():
                parameter.fill_(1.0) if "norm" in label else parameter.normal_(0, 0.02)
        model.tie_weights()
        model.save_pretrained(target)
        tokenizer_of(text, config.vocab_size).save_pretrained(target)
        print(name, sum(one.numel() for one in model.parameters()), flush=True)
        del model


if __name__ == "__main__":
    main()
