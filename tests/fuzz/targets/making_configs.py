"""Config texts: damaged real ones, and made-up ones over the known keys with typed and odd values."""

import re
from itertools import pairwise

import yaml
from tests.fuzz.keys import BASES, all_keys
from tests.fuzz.kinds import KINDS
from tests.fuzz.mutate import HOSTILE_TEXT, bytes_changed, lines_changed, odd_number_text, odd_value
from tests.fuzz.schedule import OPTIONS, config_with, text_of
from tests.fuzz.seeds import config_texts, known_keys

# Two layers: a prediction in milliseconds. `write_model` puts it where `base_model: model` finds it.
TINY_MODEL = """{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
"num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 2, "vocab_size": 256, "max_position_embeddings": 512}"""
BASE = text_of(BASES["axolotl"])
# Values no list of types thinks of, as YAML writes them.
ODD_YAML = (
    *(
        "~",
        "null",
        "yes",
        "on",
        "'8'",
        '"auto"',
        "1e-4",
        "5e5",
        "1_000",
        "0o17",
        "0x10",
        "1:30",
        ".inf",
        "-.inf",
        ".nan",
    ),
    *("2001-01-01", "2001-99-99", "2001-12-14t21:59:43.10-05:00", "!!binary aGVsbG8=", "!!set {a, b}", "!!omap [a: 1]"),
    *("!!str 8", "!!int '8'", "!!float 8", "&a [*a]"),
    *(
        "[]",
        "{}",
        "[[[]]]",
        "{a: {b: {c: 1}}}",
        "[1, 2, 3]",
        "|\n  text\n  # no comment",
        ">-\n  folded",
    ),
    *(
        '"\\e]52;c;aGk=\\a"',
        '"x\\n::error::owned"',
        '"\\x9b31m"',
        '"\\0"',
        '"<img src=x onerror=alert(1)>"',
    ),
    *(
        "9" * 5000,
        "1" + "0" * 30,
        "3000",
        "5000000",
        "4096",
        "-1",
        "0",
        "512",
        "100000",
        "1000000",
    ),
)
# What is no YAML, or none that may be read: the whole file is refused, and nothing behind the reader is reached.
BROKEN_YAML = (
    *("!!python/object/apply:os.system ['true']", "*nowhere", "<<: *x", "? x", "- - -", "'", '"', "%", "@x", "`"),
    '"\\ud800"',
)
# What moves a prediction.
MOVING = (
    *("micro_batch_size", "gradient_accumulation_steps", "sequence_len", "eval_batch_size", "adapter", "lora_r"),
    *("lora_target_modules", "lora_target_linear", "load_in_8bit", "load_in_4bit", "optimizer", "bf16", "fp16", "tf32"),
    *(
        "gradient_checkpointing",
        "sample_packing",
        "pad_to_sequence_len",
        "val_set_size",
        "flash_attention",
        "attn_implementation",
    ),
    *("fsdp", "fsdp_config", "deepspeed", "rl", "plugins", "unfrozen_parameters", "lora_modules_to_save", "max_steps"),
    *("activation_offloading", "torch_compile", "layers_to_transform", "peft_layers_to_transform", "eval_sequence_len"),
)
_WORDS = (
    "lora",
    "qlora",
    "auto",
    "adamw_8bit",
    "muon",
    "sdpa",
    "eager",
    "dpo",
    "grpo",
    "offload",
    "steps",
    "no",
    "llora",
    "",
)
_WORD = re.compile(r"[\w.:=-]{1,60}", re.ASCII)
_MODEL_LINE = re.compile(r"^base_model:.*$", re.MULTILINE)
_MODEL_LINE_BYTES = re.compile(rb"^base_model:.*$", re.MULTILINE)


def odd_yaml(rng):
    """An odd value as YAML writes it; one in fifteen breaks the file."""
    return rng.choice(BROKEN_YAML if rng.random() < 0.07 else ODD_YAML)


def write_model(bench):
    """The tiny model beside the config."""
    if not (bench.folder / "model" / "config.json").exists():
        bench.write("model/config.json", TINY_MODEL)


def config_text(rng):
    """Any config."""
    kind = rng.random()
    if kind < 0.45:
        text = lines_changed(rng, rng.choice(config_texts()), rng.choice(config_texts()), odd_line)
    elif kind < 0.65:
        text = made_up(rng)
    elif kind < 0.85:
        text = several_keys(rng)
    else:
        return bytes_changed(rng, rng.choice(config_texts()).encode(), rng.choice(config_texts()).encode())
    return text.encode("utf-8", "replace")


def predictable_text(rng):
    """A config whose model is known and small, more often than not, so that the prediction is reached."""
    if rng.random() < 0.5:
        text = BASE + "".join(odd_setting(rng, rng.choice(MOVING)) for _ in range(rng.randint(1, 5)))
        text = _without_doubles(text)
    else:
        text = config_text(rng).decode("utf-8", "replace")
    return _MODEL_LINE.sub("base_model: model", text, count=1).encode()


def mostly_tiny(rng):
    """Any config, its model replaced by the tiny one in all but one of fifty: large ones take seconds to predict."""
    data = config_text(rng)
    if rng.random() < 0.02:
        return data
    return _MODEL_LINE_BYTES.sub(b"base_model: model", data, count=1)


def _without_doubles(text):
    """Of a top-level key that stands twice, the later one: a duplicate is refused before anything else is read."""
    blocks = re.split(r"\n(?=[\w])", text)
    return "\n".join({block.split(":")[0]: block.rstrip("\n") for block in blocks}.values()) + "\n"


def made_up(rng):
    """Known keys with values seen for them, odd ones and wrong ones."""
    text = text_of(rng.choice((BASES["axolotl"], *BASES.values()))) if rng.random() < 0.6 else ""
    keys = list(known_keys())
    for _ in range(rng.randint(1, 14)):
        text += odd_setting(rng, rng.choice(keys))
        if rng.random() < 0.1:
            text += rng.choice(
                ("# a comment\n", "\n", "  # indented\n", "---\n", "...\n", "\t\n", "# vramwise: ignore\n")
            )
    return _without_doubles(text) if rng.random() < 0.9 else text


def several_keys(rng):
    """A config of any trainer with some of its keys, in its blocks too, and values of any kind."""
    trainer = rng.choice(list(BASES))
    keys = [key for key in all_keys() if key.trainer == trainer]
    return config_with([(rng.choice(keys), rng.choice(KINDS)) for _ in range(rng.randint(1, 6))])


def options_of(data):
    """Options that the first line of a config's text gives the command: a version and a trainer."""
    first = data.partition(b"\n")[0].decode("utf-8", "replace")
    if not first.startswith(OPTIONS):
        return {}
    words = first.removeprefix(OPTIONS).split()
    return {
        word: value for word, value in pairwise(words) if word in ("--with", "--trainer") and _WORD.fullmatch(value)
    }


def api_options(data, **more):
    """The same for the Python interface."""
    said = options_of(data)
    return {"versions": (said["--with"],) if "--with" in said else (), "trainer": said.get("--trainer"), **more}


def odd_setting(rng, key):
    """One `key: value`, over as many lines as it takes."""
    kind = rng.random()
    seen = known_keys().get(key)
    if seen and kind < 0.4:
        return _dumped(key, rng.choice(seen))
    if kind < 0.55:
        return f"{key}: {rng.choice(_WORDS)}\n"
    if kind < 0.7:
        return f"{key}: {odd_number_text(rng)}\n"
    if kind < 0.85:
        return f"{key}: {odd_yaml(rng)}\n"
    if kind < 0.9:
        return f"{key}: {odd_yaml(rng)}  # why: {rng.choice(('x', 'é', '#'))}\n"
    return _dumped(key, odd_value(rng))


def odd_line(rng, line):
    """A line instead of this one, or a new one."""
    key, colon, _ = line.partition(":")
    if colon and rng.random() < 0.7:
        return f"{key}: {odd_yaml(rng) if rng.random() < 0.6 else odd_number_text(rng)}"
    if rng.random() < 0.2:
        return rng.choice(HOSTILE_TEXT)
    return odd_setting(rng, rng.choice(list(known_keys()))).rstrip("\n")


def _dumped(key, value):
    try:
        return yaml.safe_dump({key: value}, allow_unicode=True)
    except yaml.YAMLError:
        return f"{key}: x\n"
