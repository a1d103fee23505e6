"""Files beside a config that decide memory: a model's config.json, sample lengths, DeepSpeed's JSON."""

import json

from tests.fuzz.mutate import bytes_changed, nested, odd_number_text, odd_value, value_changed
from tests.fuzz.seeds import model_configs
from tests.fuzz.targets import add
from tests.fuzz.targets.making_configs import BASE, TINY_MODEL, write_model

_SIZES = (
    *(
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "num_hidden_layers",
        "vocab_size",
    ),
    *(
        "head_dim",
        "num_experts",
        "num_local_experts",
        "num_experts_per_tok",
        "sliding_window",
        "max_position_embeddings",
    ),
    *("layer_types", "moe_intermediate_size", "first_k_dense_replace", "vision_config", "text_config", "rope_scaling"),
    *("model_type", "torch_dtype", "tie_word_embeddings", "quantization_config", "shared_expert_intermediate_size"),
)


def _dumped(value):
    return json.dumps(value).encode()


def _model(rng):
    kind = rng.random()
    base = json.loads(TINY_MODEL) if kind < 0.5 else dict(rng.choice(model_configs()))
    if kind < 0.8:  # small enough to be quick, then odd in one or two places
        for key, most in (
            ("num_hidden_layers", 2),
            ("vocab_size", 512),
            ("hidden_size", 256),
            ("intermediate_size", 512),
        ):
            if isinstance(base.get(key), int):
                base[key] = min(base[key], most)
    if kind < 0.3:
        for _ in range(rng.randint(1, 3)):
            base[rng.choice(_SIZES)] = rng.choice((odd_value(rng), rng.randint(1, 300)))
        return _dumped(base)
    if kind < 0.9:
        return _dumped(value_changed(rng, base))
    return bytes_changed(rng, _dumped(base), _dumped(rng.choice(model_configs())))


def _with_model(*words):
    def run(bench, data):
        bench.write("given/config.json", data)
        bench.command(words[0], bench.write("config.yml", BASE.replace("model: model", "model: given")), *words[1:])

    return run


def _lengths(rng):
    lines = []
    for _ in range(rng.choice((1, 3, 20, 200))):
        kind = rng.random()
        if kind < 0.5:
            lines.append(str(rng.choice((rng.randint(1, 256), rng.randint(1, 256), rng.randint(1, 4096)))))
        elif kind < 0.52:
            lines.append(odd_number_text(rng))
        else:
            key = rng.choice(("length", "length", "input_ids", "text", "messages", "x"))
            lines.append(json.dumps({key: rng.choice((rng.randint(1, 300), [1, 2, 3], "some text", odd_value(rng)))}))
    if rng.random() < 0.5:  # one kind of lines, as files have
        lines = [line for line in lines if line.startswith("{") == lines[0].startswith("{")]
    data = rng.choice(("\n", "\n", "\r\n", "\x0b")).join(lines).encode("utf-8", "surrogatepass")
    return bytes_changed(rng, data) if rng.random() < 0.3 else data


def _with_lengths(*options):
    def run(bench, data):
        write_model(bench)
        config = bench.write("config.yml", BASE + "val_set_size: 0.1\n")
        name = bench.write("lengths.txt", data)
        bench.command("predict", config, *(word for option in options for word in (option, name)))

    return run


_DEEPSPEED = {
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "offload_param": {"device": "cpu"},
        "stage3_param_persistence_threshold": "auto",
        "overlap_comm": True,
        "contiguous_gradients": True,
        "reduce_bucket_size": "auto",
        "sub_group_size": 1e9,
    },
    "bf16": {"enabled": "auto"},
    "fp16": {"enabled": "auto"},
    "compile": {"deepcompile": True},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
}


def _deepspeed(rng):
    if rng.random() < 0.1:
        return bytes_changed(rng, _dumped(_DEEPSPEED))
    if rng.random() < 0.02:
        return _dumped({"zero_optimization": nested(300)})
    return _dumped(value_changed(rng, _DEEPSPEED))


def _with_deepspeed(*words):
    def run(bench, data):
        write_model(bench)
        bench.write("ds.json", data)
        bench.command(words[0], bench.write("config.yml", BASE + "deepspeed: ds.json\n"), "--gpus", "4", *words[1:])

    return run


add(
    name="model",
    about="a model's config.json → `predict`, `check --gpu`",
    extension="json",
    make=_model,
    checks={
        "predict": _with_model("predict"),
        "cards": _with_model("predict", "--cards"),
        "check": _with_model("check", "--gpu", "rtx-4090"),
    },
)
add(
    name="lengths",
    about="sample lengths, numbers or JSON lines → `predict --lengths`, `--eval-lengths`",
    extension="txt",
    make=_lengths,
    checks={
        "train": _with_lengths("--lengths"),
        "eval": _with_lengths("--eval-lengths"),
        "both": _with_lengths("--lengths", "--eval-lengths"),
    },
)
add(
    name="deepspeed",
    about="the DeepSpeed JSON that a config names → `check`, `predict`",
    extension="json",
    make=_deepspeed,
    checks={
        "check": _with_deepspeed("check"),
        "check-gpu": _with_deepspeed("check", "--gpu", "h100"),
        "predict": _with_deepspeed("predict"),
    },
)
