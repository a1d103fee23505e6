"""Live trainers of TRL: the kind, the reference and the rows, and that reading the script says the same."""

import pytest

import vramwise
from installed import Later, need, needs

pytestmark = [needs("trl", "torch", "transformers", "peft", "datasets"), pytest.mark.filterwarnings("ignore")]
torch, transformers, trl, peft, datasets = map(Later, ("torch", "transformers", "trl", "peft", "datasets"))
source = Later("vramwise.training.live.source")
# Settings that a script cannot say and that change nothing here: where the weights are before training, a hook that
# TRL sets itself, rows of prompts.
OBJECTS_ALONE = {"loads_through", "embeddings_want_grads", "unfollowed"}


def text(count):
    return " ".join(f"w{number % 200}" for number in range(count))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    need("tokenizers")
    import tokenizers

    path = tmp_path_factory.mktemp("model")
    words = {
        word: number for number, word in enumerate(["<pad>", "<eos>", "<unk>", *(f"w{one}" for one in range(200))])
    }
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, **special).save_pretrained(path)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "vocab_size": 256}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0, "eos_token_id": 1}
    config = transformers.LlamaConfig(**sizes, **heads)
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(path)
    return path


def pairs():
    return [
        {"prompt": text(4), "chosen": " " + text(5 + n % 40), "rejected": " " + text(4 + n % 30)} for n in range(24)
    ]


ROWS = {
    "SFT": lambda: [{"text": text(5 + number % 60)} for number in range(24)],
    "DPO": pairs,
    "KTO": lambda: [{"prompt": text(4), "completion": " " + text(5 + n % 40), "label": n % 2 == 0} for n in range(24)],
    "GRPO": lambda: [{"prompt": text(3 + number % 9)} for number in range(24)],
}
ARGUMENTS = {
    "SFT": {"max_length": 48},
    "DPO": {"max_length": 48},
    "KTO": {"max_length": 48},
    "GRPO": {"max_completion_length": 16, "num_generations": 2},
}


def trainer(folder, kind, *, lora=False, **more):
    arguments = {"per_device_train_batch_size": 2, **ARGUMENTS[kind], **more}
    args = getattr(trl, f"{kind}Config")(output_dir=str(folder / "out"), report_to=[], use_cpu=True, **arguments)
    given = {"peft_config": peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"])} if lora else {}
    if kind == "GRPO":
        given["reward_funcs"] = lambda completions, **_: [0.0] * len(completions)
    return getattr(trl, f"{kind}Trainer")(
        model=transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16),
        args=args,
        train_dataset=datasets.Dataset.from_list(ROWS[kind]()),
        processing_class=transformers.AutoTokenizer.from_pretrained(folder),
        **given,
    )


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("kind", ["SFT", "DPO", "KTO", "GRPO"])
def test_the_objects_and_the_script_agree(folder, kind, lora):
    one = trainer(folder, kind, lora=lora)
    live = vramwise.predict(one, gpu="rtx-4090")
    assert live.fits is True
    written = "".join(f", {key}={value!r}" for key, value in ARGUMENTS[kind].items())
    script = folder / "train.py"
    script.write_text(
        "import torch\nTARGETS = ['q_proj', 'v_proj']\nfrom transformers import AutoModelForCausalLM\nfrom peft import LoraConfig\n"
        f"from trl import {kind}Config, {kind}Trainer\n"
        f"model = AutoModelForCausalLM.from_pretrained({str(folder)!r}, dtype=torch.bfloat16)\n"
        f"args = {kind}Config(output_dir={str(folder / 'out')!r}, per_device_train_batch_size=2{written})\n"
        f"trainer = {kind}Trainer(model=model, args=args"
        f"{', peft_config=LoraConfig(r=4, target_modules=TARGETS)' if lora else ''})\n"
    )
    read = vramwise.predict(script, gpu="rtx-4090")
    settings = [dict(answer.prediction.run.settings()) for answer in (live, read)]
    differ = {key: [one[key] for one in settings] for key in settings[0] if settings[0][key] != settings[1][key]}
    assert {key: value for key, value in differ.items() if key not in OBJECTS_ALONE} == {}


def test_rows_of_pairs_are_drawn_in_order(folder):
    lengths = source.of_trainer(trainer(folder, "DPO")).data.train
    assert lengths.pairs
    assert len(lengths.tokens) == 48
    assert {shape.rows for shape in lengths.drawn} == {4}


def test_prompts_are_drawn_where_completions_are_generated(folder):
    lengths = source.of_trainer(trainer(folder, "GRPO")).data.train
    assert sorted(set(lengths.tokens)) == list(range(3, 12))
