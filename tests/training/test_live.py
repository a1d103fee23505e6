"""Live trainers: the objects decide, nothing about them changes, and reading their script says the same."""

import json
import random
import time
from types import SimpleNamespace

import pytest

import vramwise
from installed import Later, needs
from vramwise.notebook import magic
from vramwise.units import GIB

pytestmark = [needs("torch", "transformers", "accelerate"), pytest.mark.filterwarnings("ignore")]
torch = Later("torch")
np = Later("numpy")
transformers = Later("transformers")
source = Later("vramwise.training.live.source")
integration = Later("vramwise.integrations.transformers")
WIDTHS = [10 + 7 * number % 50 for number in range(80)]


class Rows:
    def __init__(self, widths=WIDTHS):
        self.widths = widths
        self.read = 0

    def __len__(self):
        return len(self.widths)

    def __getitem__(self, number):
        random.random(), np.random.rand(), torch.rand(1)
        return {"input_ids": [1] * self.widths[number], "labels": [1] * self.widths[number]}


class Padding:
    """A collator that pads to the longest row, or to a multiple."""

    def __init__(self, multiple=1):
        self.multiple = multiple

    def __call__(self, rows):
        width = -(-max(len(row["input_ids"]) for row in rows) // self.multiple) * self.multiple

        def padded(key, fill):
            return torch.tensor([row[key] + [fill] * (width - len(row[key])) for row in rows])

        mask = [[1] * len(row["input_ids"]) + [0] * (width - len(row["input_ids"])) for row in rows]
        return {
            "input_ids": padded("input_ids", 0),
            "labels": padded("labels", -100),
            "attention_mask": torch.tensor(mask),
        }


def config(**more):
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "vocab_size": 512}
    return transformers.LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2, **more)


def model(dtype=None, **more):
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config(**more)).to(dtype or torch.float32)


def trainer(tmp_path, of=None, made=None, rows=None, **more):
    asked = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "bf16": True, "use_cpu": True, **more}
    args = transformers.TrainingArguments(output_dir=str(tmp_path), report_to=[], **asked)
    return (made or transformers.Trainer)(
        model=of or model(), args=args, train_dataset=rows or Rows(), data_collator=Padding()
    )


def predicted(one):
    return vramwise.predict(one, gpu="rtx-4090")


def allocated(one):
    return predicted(one).needs.peak_allocated_bytes


def test_a_live_trainer_is_predicted_with_its_own_rows(tmp_path):
    one = trainer(tmp_path)
    answer = predicted(one)
    run = answer.prediction.run
    assert answer.fits is True
    assert (run.batch.micro_batch_size, run.batch.gradient_accumulation_steps) == (4, 2)
    assert run.precision.weights_dtype == "fp32"
    assert run.shapes.sequence_len == max(WIDTHS)
    real = [tuple(batch["input_ids"].shape) for batch in one.get_train_dataloader()]
    drawn = source.of_trainer(one).data.train.drawn
    assert [(shape.rows, shape.width) for shape in drawn] == real
    assert vramwise.as_json(answer)["model"] == "LlamaForCausalLM"
    assert answer._repr_html_().startswith("<iframe")


def state_of(one):
    parameters = {
        name: (parameter.data_ptr(), parameter.requires_grad, parameter.dtype, parameter.detach().clone())
        for name, parameter in one.model.named_parameters()
    }
    kept = {name: repr(value) for name, value in vars(one).items() if name not in ("model", "model_wrapped")}
    return parameters, kept, random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()


@pytest.mark.parametrize("made", ["before", "with an optimizer"])
def test_nothing_is_changed(tmp_path, made):
    one = trainer(tmp_path)
    if made != "before":
        one.create_optimizer()
    loaders = list(one.accelerator._dataloaders)
    parameters, kept, *states = state_of(one)
    predicted(one)
    vramwise.check(one, gpu="rtx-4090")
    again, kept_again, *states_again = state_of(one)
    assert states == states_again
    assert kept == kept_again
    assert list(one.accelerator._dataloaders) == loaders
    assert parameters.keys() == again.keys()
    for name, before in parameters.items():
        assert before[:3] == again[name][:3]
        assert torch.equal(before[3], again[name][3])
    assert all(parameter.grad is None for parameter in one.model.parameters())
    if made != "before":
        assert one.optimizer.state == {}


def test_it_trains_the_same_after_a_prediction(tmp_path):
    def losses(first):
        one = trainer(tmp_path, max_steps=3, logging_steps=1, save_strategy="no", bf16=False)
        first(one)
        one.train()
        return [entry["loss"] for entry in one.state.log_history if "loss" in entry]

    assert losses(lambda one: None) == losses(predicted)


def test_a_frozen_layer_changes_the_answer(tmp_path):
    one = trainer(tmp_path)
    before = allocated(one)
    for parameter in one.model.model.layers[:2].parameters():
        parameter.requires_grad_(False)
    run = predicted(one).prediction.run
    assert run.adapter.unfrozen
    assert allocated(one) < before
    one.model.requires_grad_(False)
    with pytest.raises(vramwise.VramwiseError, match="frozen"):
        predicted(one)


def test_a_frozen_encoder_changes_the_answer(tmp_path):
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4}
    of = transformers.BertForTokenClassification(transformers.BertConfig(**sizes, vocab_size=512, num_labels=3))
    one = trainer(tmp_path, of=of)
    before = predicted(one)
    assert not before.prediction.run.unfollowed
    of.bert.requires_grad_(False)
    assert allocated(one) < before.needs.peak_allocated_bytes


def test_a_swapped_collator_changes_the_answer(tmp_path):
    one = trainer(tmp_path)
    before = allocated(one)
    one.data_collator = Padding(multiple=512)
    assert predicted(one).prediction.run.shapes.sequence_len == 512
    assert allocated(one) > before


def test_a_cast_module_changes_the_answer(tmp_path):
    one = trainer(tmp_path, of=model(torch.bfloat16))
    before = allocated(one)
    one.model.model.layers[0].mlp.float()
    one.model.lm_head.float()
    names = predicted(one).prediction.run.loading.upcasts_at_load
    assert "lm_head" in names
    assert "model.layers.0.mlp.up_proj.weight" in names
    assert allocated(one) > before


def test_filtered_rows_change_the_answer(tmp_path):
    one = trainer(tmp_path)
    one.train_dataset = Rows([width for width in WIDTHS if width < 20])
    assert predicted(one).prediction.run.shapes.sequence_len == max(width for width in WIDTHS if width < 20)


def test_layers_taken_out_and_checkpointing_turned_on_change_the_answer(tmp_path):
    one = trainer(tmp_path)
    one.model.gradient_checkpointing_enable({"use_reentrant": False})
    run = predicted(one).prediction.run
    assert run.savings.recompute
    assert not run.savings.checkpointing_reentrant
    one.model.model.layers = one.model.model.layers[:1]
    assert predicted(one).prediction.model.num_hidden_layers == 1


def test_the_optimizer_that_was_made_counts(tmp_path):
    one = trainer(tmp_path)
    one.optimizer = torch.optim.SGD(one.model.parameters(), lr=0.1)
    assert predicted(one).prediction.run.optimizer.name == "sgd"


def test_modules_of_another_kind_are_not_silently_left_out(tmp_path):
    of = model()
    of.extra = torch.nn.Linear(512, 512)
    assert any("own modules" in one.name for one in predicted(trainer(tmp_path, of=of)).prediction.run.unfollowed)


def test_a_class_that_extends_the_trainer_says_what_it_does_itself(tmp_path):
    class Own(transformers.Trainer):
        def compute_loss(self, *given, **more):
            return super().compute_loss(*given, **more)

    notes = predicted(trainer(tmp_path, made=Own)).prediction.assumptions
    assert any("Own has its own compute_loss" in note for note in notes)


def test_a_model_type_of_ones_own_is_traced_here(tmp_path):
    class OwnConfig(transformers.LlamaConfig):
        model_type = "a_type_of_ones_own"

    class Own(transformers.LlamaForCausalLM):
        config_class = OwnConfig

    known = allocated(trainer(tmp_path))
    one = trainer(tmp_path, of=Own(OwnConfig(**config().to_dict())))
    _, kept, *states = state_of(one)
    answer = predicted(one)
    _, kept_again, *states_again = state_of(one)
    assert (states, kept) == (states_again, kept_again)
    assert answer.prediction.model.family == "traced"
    assert answer.needs.peak_allocated_bytes == pytest.approx(known, rel=0.01)
    one.model.model.layers[:2].requires_grad_(False)
    assert allocated(one) < answer.needs.peak_allocated_bytes


def test_a_head_for_classes(tmp_path):
    of = transformers.LlamaForSequenceClassification(config(num_labels=5, pad_token_id=0))
    run = predicted(trainer(tmp_path, of=of)).prediction.run
    assert (run.objective.kind, run.objective.class_labels) == ("classes", 5)


def test_adapters_are_read_from_the_modules(tmp_path):
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(
        r=4, target_modules=["q_proj", "v_proj"], layers_to_transform=[0, 1], modules_to_save=["lm_head"]
    )
    one = trainer(tmp_path, of=peft.get_peft_model(model(torch.bfloat16), lora))
    run = predicted(one).prediction.run
    assert run.adapter.kind == "lora"
    assert run.adapter.lora_r == 4
    assert run.adapter.lora_modules_to_save == ("lm_head",)
    assert run.adapter.lora_target_modules == tuple(
        f"model.layers.{layer}.self_attn.{part}" for layer in (0, 1) for part in ("q_proj", "v_proj")
    )
    assert not run.adapter.unfrozen
    adapters = sum(one.numel() for name, one in one.model.named_parameters() if ".lora_" in name)
    assert adapters == sum(4 * (64 + size) for size in (64, 32)) * 2
    for name, parameter in one.model.named_parameters():
        parameter.requires_grad_("lora_B" in name)
    assert predicted(one).prediction.run.adapter.unfrozen


def test_quantised_layers_are_read_from_the_modules(tmp_path):
    class Linear4bit(torch.nn.Module):
        """What bitsandbytes' layer shows of itself."""

        def __init__(self, of):
            super().__init__()
            self.in_features, self.out_features = of.in_features, of.out_features
            packed = torch.zeros((of.in_features * of.out_features // 2, 1), dtype=torch.uint8)
            self.weight = torch.nn.Parameter(packed, requires_grad=False)
            self.weight.quant_type = "nf4"
            self.weight.compress_statistics = False

    of = model(torch.bfloat16)
    for layer in of.model.layers:
        for part in (layer.self_attn, layer.mlp):
            for name, inner in list(part.named_children()):
                if isinstance(inner, torch.nn.Linear):
                    setattr(part, name, Linear4bit(inner))
    run = predicted(trainer(tmp_path, of=of)).prediction.run
    assert run.loading.quantization == "4bit"
    assert run.loading.nested_scales is False
    assert run.precision.weights_dtype == "bf16"


def test_changes_and_fit_follow(tmp_path):
    one = trainer(tmp_path)
    changed = vramwise.predict(one, gpu="rtx-4090", changes=["per_device_train_batch_size=1"])
    assert changed.prediction.run.batch.micro_batch_size == 1
    assert changed.prediction.model.name == "LlamaForCausalLM"
    report = vramwise.fit(one, gpu="rtx-4090", limit_bytes=2**30)
    assert report.best is not None
    (checked,) = vramwise.check(one, gpu="rtx-4090")
    assert checked.error is None


def test_reading_the_script_says_the_same(tmp_path):
    """Where the script says everything, the objects add nothing."""
    name = tmp_path / "model"
    model(torch.bfloat16).save_pretrained(name)
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "from transformers import LlamaForCausalLM, Trainer, TrainingArguments\n"
        f"model = LlamaForCausalLM.from_pretrained({str(name)!r}, dtype=torch.bfloat16)\n"
        f"args = TrainingArguments(output_dir={str(tmp_path)!r}, per_device_train_batch_size=4, bf16=True, "
        "gradient_checkpointing=True, optim='adafactor')\n"
        "trainer = Trainer(model=model, args=args)\n"
    )
    of = transformers.LlamaForCausalLM.from_pretrained(name, dtype=torch.bfloat16)
    one = trainer(tmp_path, of=of, gradient_accumulation_steps=1, gradient_checkpointing=True, optim="adafactor")
    live = dict(predicted(one).prediction.run.settings())
    read = dict(
        vramwise.predict(script, gpu="rtx-4090", settings=[f"max_length={max(WIDTHS)}"]).prediction.run.settings()
    )
    assert {key: (live[key], read[key]) for key in live if live[key] != read[key]} == {}


def test_other_objects_are_refused():
    class Other:
        model, args = None, None

    with pytest.raises(vramwise.VramwiseError, match="extends no known trainer"):
        vramwise.predict(Other())


def test_a_known_model_takes_seconds(tmp_path):
    one = trainer(tmp_path)
    predicted(one)
    start = time.process_time()
    predicted(one)
    assert time.process_time() - start < 3


def test_a_stream_is_not_read(tmp_path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            raise AssertionError("it was read")

    one = trainer(tmp_path, rows=Stream(), max_steps=2)
    assert any("stream" in note for note in predicted(one).prediction.assumptions)


def test_what_others_hold_on_the_card_is_subtracted(tmp_path, monkeypatch):
    cuda = {"is_available": True, "is_initialized": True, "current_device": 0, "memory_reserved": GIB}
    cuda |= {"memory_allocated": GIB, "mem_get_info": (8 * GIB, 24 * GIB)}
    one = trainer(tmp_path)
    assert source.of_trainer(one).limit_bytes is None
    for name, value in cuda.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    live = source.of_trainer(one)
    assert live.limit_bytes == 8 * GIB
    (said,) = live.notes
    assert said.startswith("the card already holds 1.0 GiB of other tensors of this process and 14.")
    assert vramwise.predict(one).prediction.limit_bytes == 8 * GIB
    assert vramwise.predict(one, gpu="rtx-4090").prediction.limit_bytes is None


def batch(rows=3, width=30):
    return Padding()([{"input_ids": [1] * width, "labels": [1] * width}] * rows)


def test_a_loop_is_predicted_from_its_objects():
    of = model(torch.bfloat16)
    optimizer = torch.optim.SGD(of.parameters(), lr=0.1)
    asked = {"optimizer": optimizer, "autocast": torch.bfloat16, "accumulation": 4, "gpu": "rtx-4090"}
    answer = vramwise.predict(model=of, batch=batch(), **asked)
    run = answer.prediction.run
    assert (run.batch.micro_batch_size, run.batch.gradient_accumulation_steps, run.shapes.sequence_len) == (3, 4, 30)
    assert (run.optimizer.name, run.optimizer.max_grad_norm, run.precision.autocast) == ("sgd", 0.0, True)
    assert answer.duration is None
    assert str(answer).startswith("✓ Fits")
    wide = vramwise.predict(model=of, batch=batch(width=600), **asked)
    assert wide.needs.peak_allocated_bytes > answer.needs.peak_allocated_bytes


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"model": 3}, "pass the model's name, or the model itself"),
        ({"model": lambda: torch.nn.Linear(2, 2)}, "no model of transformers"),
        ({"model": lambda: model(), "batch": {"pixels": 1}}, "no input_ids"),
        ({"model": lambda: model(), "autocast": "half"}, "torch.bfloat16"),
    ],
)
def test_what_cannot_be_predicted_is_said(given, says):
    made = given["model"]() if callable(given["model"]) else given["model"]
    with pytest.raises(vramwise.VramwiseError, match=says):
        vramwise.predict(**{**given, "model": made})


class Device:
    """A card that holds 24 GiB."""

    name, device_bytes = "fake:0", 24 * GIB

    def read(self, *, fresh=False):
        from vramwise.training.guard.samples import Reading

        sizes = {"allocated_bytes": GIB, "reserved_bytes": GIB, "peak_allocated_bytes": GIB, "peak_reserved_bytes": GIB}
        return Reading(**sizes, retries=0)

    def reset_peaks(self):
        pass


def test_a_loop_is_watched(tmp_path):
    of = model()
    optimizer = torch.optim.SGD(of.parameters(), lr=0.1)
    said = []
    with vramwise.watch(
        of, optimizer, output_dir=tmp_path, gpu="rtx-4090", backend=Device(), report=said.append
    ) as seen:
        for _ in range(3):
            of(**batch()).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    of(**batch())
    assert seen.steps == 3
    assert seen.answer.fits is True
    assert "1.0 GiB measured in 3 steps" in str(seen)
    assert [one.rule for one in seen.warnings] == ["above-prediction"]
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "memory.jsonl").read_text().splitlines()]
    assert kinds[0] == "start"
    assert kinds.count("sample") == 7
    assert kinds[-1] == "end"
    assert not of._forward_pre_hooks


def test_the_guard_warns_before_the_first_step(tmp_path):
    said = []
    guard = integration.MemoryGuard(backend=Device(), limit_bytes=2**24, report=said.append)
    one = trainer(tmp_path, max_steps=1, bf16=False)
    one.add_callback(guard)
    one.train()
    assert any("before the first step: ✗ Does not fit" in text for text in said)
    stops = integration.MemoryGuard(backend=Device(), limit_bytes=2**24, stop=True)
    one = trainer(tmp_path, max_steps=1, bf16=False)
    one.add_callback(stops)
    with pytest.raises(vramwise.VramwiseError, match="Does not fit"):
        one.train()
    assert one.state.global_step == 0


def test_the_magic_answers_for_the_trainer_or_the_cells(tmp_path, capsys):
    shell = SimpleNamespace(user_ns={"In": ["", "x = 1"]}, magics={})
    shell.register_magic_function = lambda function, kind, name: shell.magics.update({name: function})
    vramwise.load_ipython_extension(shell)
    ask = shell.magics["vramwise"]
    assert ask("--gpu rtx-4090") is None
    assert "calls no known trainer" in capsys.readouterr().err
    shell.user_ns["In"] = [
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments",
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B')",
        "trainer = Trainer(model, TrainingArguments('out', per_device_train_batch_size=2))",
    ]
    assert ask("--gpu rtx-4090").prediction.model.name == "Qwen/Qwen2.5-0.5B"
    shell.user_ns["trainer"] = trainer(tmp_path)
    assert ask("--gpu rtx-4090").prediction.model.name == "LlamaForCausalLM"
    assert ask("check --gpu rtx-4090")[0].error is None
    assert ask("train") is None
    assert "expected predict, fit or check" in capsys.readouterr().err
    assert magic.trainer_in({"_1": shell.user_ns["trainer"]}) is None
