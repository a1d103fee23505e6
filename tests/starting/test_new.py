"""`vramwise new`: the config is clean, fits and says why, for each trainer and each format of data."""

import json

import pytest
import yaml

from vramwise.api import check, fit, new
from vramwise.errors import VramwiseError
from vramwise.variants.search.book import Book

pytestmark = pytest.mark.usefixtures("brief_searches")
MODEL = "HuggingFaceTB/SmolLM2-135M"
CARD = "rtx-4090"
ANSWER = "a fine answer " * 30
ROWS = {
    "alpaca": {"instruction": "Say it", "input": "", "output": ANSWER},
    "chat": {"messages": [{"role": "user", "content": "Say it"}, {"role": "assistant", "content": ANSWER}]},
    "sharegpt": {"conversations": [{"from": "human", "value": "Say it"}, {"from": "gpt", "value": ANSWER}]},
    "prompt": {"prompt": "Say it", "completion": ANSWER},
    "pairs": {"prompt": "Say it", "chosen": ANSWER, "rejected": "no"},
    "text": {"text": ANSWER},
}
# What each trainer makes of each format.
AXOLOTL_TYPES = {
    "alpaca": "alpaca",
    "chat": "chat_template",
    "sharegpt": "chat_template",
    "pairs": "user_defined.default",
    "text": "completion",
}
LAUNCHED = {
    "axolotl": "axolotl train",
    "trl": "trl sft --config",
    "llamafactory": "llamafactory-cli train",
    "unsloth": "python train.py",
}


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Files of every format; the folder they are in is the working folder, as it is for a user."""
    monkeypatch.chdir(tmp_path)
    for name, row in ROWS.items():
        long = json.dumps(row).replace(ANSWER, ANSWER * 40)
        (tmp_path / f"{name}.jsonl").write_text("\n".join([json.dumps(row)] * 119 + [long]))
    (tmp_path / "odd.jsonl").write_text('{"foo": "bar"}\n')
    return tmp_path


def clean_and_fitting(text, trainer, card=CARD):
    report = check(text, gpu=card, trainer=trainer)[0]
    assert report.error is None
    assert [found.rule for found in report.findings] == []
    assert report.prediction.verdict().kind == "fits"
    return report


@pytest.mark.sampled(4)
@pytest.mark.parametrize("trainer", ["axolotl", "trl", "llamafactory", "unsloth"])
@pytest.mark.parametrize("kind", ["chat", "prompt", "pairs"])
def test_every_trainer_gets_a_clean_config_that_fits(data, trainer, kind):
    if (trainer, kind) == ("llamafactory", "pairs"):
        pytest.skip("its stage dpo stops with the versions it installs with: see the test below")
    if (trainer, kind) == ("unsloth", "pairs"):
        pytest.skip("refused: see the tests of its scripts")
    found = new(MODEL, gpu=CARD, trainer=trainer, data=f"{kind}.jsonl", method="lora")
    assert found.fits
    assert found.findings == ()
    report = clean_and_fitting(found.text, trainer)
    assert (report.run.objective.rl == "dpo") == (kind == "pairs")
    assert report.run.adapter.kind == "lora"
    if kind != "pairs":
        assert LAUNCHED[trainer] in found.launch


@pytest.mark.parametrize("trainer", ["axolotl", "trl"])
def test_what_only_costs_memory_is_silenced_where_it_fits(data, trainer):
    found = new(MODEL, gpu=CARD, trainer=trainer, data="pairs.jsonl", method="full")
    assert found.findings == ()
    assert "ignore[reference-model-in-memory] it fits with it" in found.text
    clean_and_fitting(found.text, trainer)


def test_the_first_line_says_what_it_is(data):
    found = new(MODEL, gpu=CARD, trainer="llamafactory", data="chat.jsonl", method="lora")
    assert found.text.startswith("# LoRA of ")
    assert "ignore[allocator-not-expandable]" in found.text


def test_trls_command_needs_a_chat_template_and_a_script_brings_one(data):
    options = {"gpu": CARD, "trainer": "trl"}
    asked = {"data": "chat.jsonl", "method": "lora"}
    config, script = new(MODEL, **options, **asked), new(MODEL, **options, **asked, script=True)
    assert "chat template" in config.requirements[0]
    assert f"# Needs: {config.requirements[0]}" in config.text
    assert script.requirements == ()
    assert "if tokenizer.chat_template is None:" in script.text
    assert "processing_class=tokenizer," in script.text
    assert new(MODEL, **options, data="prompt.jsonl", method="lora").requirements == ()


def test_a_remedy_that_is_no_faster_is_silenced(data):
    """Logits that fill the card: the search had the choice of a fused loss."""
    rows = [json.dumps({"text": "word " * count}) for count in range(40, 1600, 10)]
    (data / "varied.jsonl").write_text("\n".join(rows))
    found = new("Qwen/Qwen2.5-0.5B", gpu="rtx-4090", trainer="llamafactory", data="varied.jsonl")
    assert found.findings == ()
    clean_and_fitting(found.text, "llamafactory")


def test_fp16_on_a_quantised_base_is_refused_for_trl(data):
    """As measured: TRL's adapters are bf16 there, whose gradients fp16's scaler cannot unscale."""
    found = new(MODEL, gpu="t4", trainer="trl", data="prompt.jsonl", method="qlora")
    assert not found.fits
    assert found.only_stops
    assert [one.rule for one in found.subject.stops] == ["refused-later"]
    assert (found.closest.card, found.smaller_model) == (None, "")
    assert new(MODEL, gpu="t4", trainer="trl", data="prompt.jsonl", method="lora").fits


def test_what_stops_the_trainer_is_told(data):
    found = new(MODEL, gpu="h100", trainer="llamafactory", data="pairs.jsonl", method="lora")
    assert [one.rule for one in found.findings] == ["dpo-import-stops"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", AXOLOTL_TYPES)
def test_formats_become_axolotls_types(data, kind):
    found = new(MODEL, gpu=CARD, data=f"{kind}.jsonl", method="lora")
    values = yaml.safe_load(found.text)
    block = values["datasets"][0]
    assert (block["path"], block["type"]) == (f"{kind}.jsonl", AXOLOTL_TYPES[kind])
    assert values.get("rl") == ("dpo" if kind == "pairs" else None)
    if kind == "sharegpt":
        assert block["message_property_mappings"] == {"role": "from", "content": "value"}
        assert block["field_messages"] == "conversations"


def test_llamafactory_is_told_what_the_columns_mean(data):
    found = new(MODEL, gpu=CARD, trainer="llamafactory", data="sharegpt.jsonl", method="lora")
    entry = json.loads(found.companions["dataset_info.json"])["sharegpt.jsonl"]
    assert yaml.safe_load(found.text)["dataset"] == "sharegpt.jsonl"
    assert entry["file_name"] == "sharegpt.jsonl"
    assert (entry["tags"]["role_tag"], entry["tags"]["user_tag"]) == ("from", "human")


def test_rows_cover_the_samples_and_the_rest_is_counted(data):
    found = new(MODEL, gpu=CARD, data="alpaca.jsonl", method="lora")
    tokens = found.plan.lengths.tokens
    rows = found.plan.rows(packed=False)
    assert sum(one <= rows.length for one in tokens) >= 0.99 * len(tokens)
    assert (rows.length % 64, rows.longer) == (0, 1)
    assert "1 longer one is dropped" in found.text


def test_a_step_sees_the_samples_that_were_asked_for(data):
    found = new(MODEL, gpu=CARD, data="alpaca.jsonl", method="lora", batch=32)
    rows = found.plan.rows(packed=found.packed)
    seen = found.subject.run.batch.effective_batch_size * rows.samples_a_row
    assert 32 / 1.6 < seen < 32 * 1.6


def test_the_best_method_that_fits_is_taken_and_the_next_better_one_told():
    small = new(MODEL, gpu="24GB")
    assert (small.method, small.better) == ("full", None)
    large = new("meta-llama/Llama-3.1-8B", gpu=CARD)
    assert large.method == "lora"
    assert large.better.method == "full"
    assert large.better.needs_bytes > large.prediction.capacity_bytes
    assert "full fine-tuning needs" in large.text


def test_fit_finds_nothing_faster(data):
    found = new(MODEL, gpu="12GB", data="chat.jsonl", method="lora")
    better = fit(found.text, gpu="12GB").fit
    assert better.best.tight or better.speedup is None or better.speedup < 1.03


def test_a_card_without_bf16_gets_fp16_and_sdpa():
    found = new(MODEL, gpu="t4", method="lora")
    assert found.subject.run.precision.compute == "fp16"
    assert found.subject.run.kernels.attn_implementation == "sdpa"
    assert "T4 has no bf16" in found.text


@pytest.mark.usefixtures("short_searches")
def test_several_cards_are_spread_over_and_launched():
    found = new("Qwen/Qwen3-4B", gpu="8xrtx-4090", trainer="trl", method="full")
    assert found.fits
    assert found.subject.run.sharding.kind != "ddp"  # a copy on each does not fit
    assert found.subject.run.batch.effective_batch_size == 16
    assert yaml.safe_load(found.text)["num_processes"] == 8


def test_many_cards_leave_nothing_to_fix(data):
    found = new(MODEL, gpu="8xrtx-4090", method="lora", data="chat.jsonl", batch=64)
    assert found.findings == ()
    assert found.subject.run.batch.gpus == 8


@pytest.mark.nightly
def test_nothing_fits_says_what_would():
    found = new("Qwen/Qwen3-8B", gpu="4GB")
    assert not found.fits
    assert found.text == ""
    assert found.closest.short_bytes > 0
    assert found.closest.card is not None
    assert found.smaller_model.startswith("Qwen/Qwen3-")


def test_without_data_the_placeholder_is_named_by_check():
    for trainer in ("axolotl", "trl", "llamafactory"):
        found = new(MODEL, gpu=CARD, trainer=trainer, method="lora")
        assert [one.rule for one in found.findings] == ["placeholder-left"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"model": "no/such-model"}, "no/such-model"),
        ({"model": MODEL, "data": "odd.jsonl"}, "preference pairs (prompt, chosen, rejected)"),
        ({"model": MODEL, "method": "magic"}, "choose one of auto, full, lora, qlora"),
        ({"model": MODEL, "data_format": "xml"}, "alpaca, chat, prompt, pairs, text"),
        ({"model": MODEL, "sequence_len": 10**6}, "takes at most"),
        ({"model": MODEL, "script": True}, "add --trainer unsloth or --trainer trl"),
    ],
)
def test_mistakes_are_one_sentence(data, asked, said):
    with pytest.raises(VramwiseError, match=said.replace("(", r"\(").replace(")", r"\)")):
        new(gpu=CARD, online=False, **asked)


def test_an_unknown_model_gets_the_answer_of_predict():
    from vramwise.api import predict

    said = []
    for ask in (
        lambda: new("no/such-model", gpu=CARD, online=False),
        lambda: predict("base_model: no/such-model\nadapter: lora\n", gpu=CARD, online=False),
    ):
        with pytest.raises(VramwiseError) as error:
            ask()
        said.append(str(error.value))
    assert said[0] == said[1]


def test_kernels_that_a_model_does_not_support_are_turned_off(data):
    """Axolotl turns its LoRA kernels on by itself and stops with the attention of OLMo 2."""
    found = new("allenai/OLMo-2-0425-1B", gpu=CARD, data="chat.jsonl", method="lora")
    assert found.fits
    assert yaml.safe_load(found.text)["lora_qkv_kernel"] is False
    clean_and_fitting(found.text, "axolotl")


def test_a_method_that_does_not_fit_takes_few_simulations(monkeypatch):
    """What a better method needs is one figure in a comment."""
    simulated = []
    weigh = Book._weighed

    def counted(book, *arguments, **words):
        simulated.append(1)
        return weigh(book, *arguments, **words)

    monkeypatch.setattr(Book, "_weighed", counted)
    found = new("meta-llama/Llama-3.2-3B", gpu="rtx-3060", method="full")
    assert not found.fits
    assert found.closest.short_bytes > 0
    assert len(simulated) <= 6
