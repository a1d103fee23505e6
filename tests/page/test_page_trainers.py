"""Other trainers' files in the browser: recognised, mended, turned and fitted in their own words."""

import pytest
from page_reader import EXAMPLES, NEEDS_PAGE, TITLE

pytestmark = NEEDS_PAGE
# Of each example: its trainer, what to mend and how it is written, the rank's key, words of another trainer's.
FILES = {
    "trl-sft.yml": ("TRL", "fp32-base", "dtype: bfloat16", "lora_r"),
    "llamafactory-lora.yml": ("LLaMA-Factory", "eval-batch-differs", "per_device_eval_batch_size: 2", "lora_rank"),
}
FOREIGN = ("micro_batch_size", "sequence_len", "base_model", "eval_batch_size:", "sample_packing")


@pytest.fixture(autouse=True)
def _silent(reader):
    yield
    assert reader.browser.complaints() == []
    assert reader.run("return document.title") == TITLE


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_trainer(reader, name):
    trainer, rule, mended, rank = FILES[name]
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    reader.choose("#gpu", "RTX 4090")
    reader.paste(text)
    assert reader.text("#trainer") == trainer
    assert "fit" in reader.text()
    assert reader.run("return document.querySelectorAll('#gutter .error, #gutter .warning').length") >= 1
    # The sliders turn its own keys, and say what they turn.
    turned = reader.run("return [...document.querySelectorAll('#knobs label')].map((one) => one.title)")
    assert rank in turned
    assert "per_device_train_batch_size" in turned
    reader.slide("micro_batch_size", 3)
    reader.slide("micro_batch_size", 3, "change")
    reader.until("return !document.getElementById('verdict').classList.contains('stale')")
    reader.click("#keep")
    reader.until("return document.getElementById('text').value.includes('per_device_train_batch_size: 4\\n')")
    reader.click("#undo")
    assert reader.config() == text
    # One click mends, in its own words.
    reader.until(f"return document.querySelector('#found [data-rule={rule}] .act button')")
    reader.click(f"#found [data-rule={rule}] .act button")
    reader.until(f"return document.getElementById('text').value.includes({mended!r})")
    assert not [word for word in FOREIGN if word in reader.text("main").replace("per_device_eval_batch_size:", "")]
    # It is handed over under its name, and in a link.
    reader.drop(name, text)
    reader.until("return document.getElementById('trainer').textContent !== ''")
    reader.click("#save")
    assert reader.downloaded(name) == text
    reader.click("#share")
    link = reader.until("return location.hash.startsWith('#c=') && location.href")
    reader.open(link)
    reader.until("return document.getElementById('trainer').textContent !== ''")
    assert (reader.config(), reader.text("#trainer")) == (text, trainer)


def test_fit_speaks_its_words(reader):
    text = (EXAMPLES / "trl-sft.yml").read_text(encoding="utf-8")
    reader.choose("#gpu", "RTX 4090")
    reader.paste(
        text.replace("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-0.5B").replace("batch_size: 1", "batch_size: 64")
    )
    reader.click("#fit")
    reader.until("return document.getElementById('take')")
    shown = reader.text("#fitted")
    assert "per_device_train_batch_size" in shown
    assert not [word for word in FOREIGN if word in shown.replace("per_device_eval_batch_size:", "")]
    assert reader.run("return document.querySelectorAll('#fitted .frontier').length") > 0
    reader.click("#take")
    reader.until("return !document.getElementById('headline').textContent.startsWith('Does not fit')")
    assert "batch_size: 64" not in reader.config()


@pytest.mark.parametrize(
    ("trainer", "title", "key"),
    [
        ("axolotl", "Axolotl", "base_model: "),
        ("trl", "TRL", "model_name_or_path: "),
        ("llamafactory", "LLaMA-Factory", "finetuning_type: full"),
        ("unsloth", "Unsloth", "FastLanguageModel"),
    ],
)
def test_start_from_a_few_words_for_each_trainer(reader, trainer, title, key):
    reader.run("document.getElementById('text').value = ''")
    reader.run(
        f"const wishes = document.getElementById('start').elements; wishes.trainer.value = '{trainer}';"
        "wishes.model.value = 'HuggingFaceTB/SmolLM2-135M'"
    )
    reader.click("#start button")
    reader.until(f"return document.getElementById('text').value.includes('{key}')")
    reader.until(f"return document.getElementById('trainer').textContent === '{title}'")
    assert "GiB" in reader.text() or "MiB" in reader.text()
