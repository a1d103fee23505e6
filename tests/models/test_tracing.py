"""Models that no family describes: where their trace comes from, and what is said where there is none."""

import json
from pathlib import Path

import pytest

import vramwise
from vramwise.errors import VramwiseError
from vramwise.models import tracing
from vramwise.models.known import read_model
from vramwise.models.traces import model_from_trace

TRACE = Path(__file__).parents[1] / "data" / "traced" / "nemotron.json"
LLAMA_LIKE = {
    "model_type": "llama_of_tomorrow",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
}
LATENT = {**LLAMA_LIKE, "kv_lora_rank": 128}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    remembering = tracing._model, tracing.installed
    for function in remembering:
        function.cache_clear()
    yield
    for function in remembering:
        function.cache_clear()


def write(tmp_path, config):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return path


@pytest.fixture
def not_installed(monkeypatch):
    monkeypatch.delenv(tracing.SWITCH, raising=False)
    monkeypatch.setattr(tracing, "installed", lambda: None)


@pytest.fixture
def traced(monkeypatch):
    """Traces are made by this instead of a child process; returns the list of what was traced."""
    monkeypatch.setattr(tracing, "installed", lambda: ("5.22.2", "2.13.0"))
    asked = []

    def run_child(text):
        asked.append(json.loads(text)["config"]["model_type"])
        return json.loads(TRACE.read_text())

    monkeypatch.setattr(tracing, "_run_child", run_child)
    return asked


def test_without_the_extra_a_refusal_names_it(tmp_path, not_installed):
    with pytest.raises(VramwiseError, match=r"latent attention.*vramwise\[trace\]"):
        read_model(write(tmp_path, LATENT))


def test_a_refusal_says_that_tracing_is_off(tmp_path, monkeypatch):
    monkeypatch.setenv(tracing.SWITCH, "0")
    with pytest.raises(VramwiseError, match=r"latent attention.*tracing is off \(VRAMWISE_TRACE=0\)"):
        read_model(write(tmp_path, LATENT))


def test_without_the_extra_llama_like_models_are_still_taken_for_llama(tmp_path, not_installed):
    model = read_model(write(tmp_path, LLAMA_LIKE))
    assert model.family_assumed
    assert "vramwise[trace]" in model.untraced


def test_an_unknown_type_is_traced_once(tmp_path, traced):
    path = write(tmp_path, LATENT)
    first = read_model(path)
    tracing._model.cache_clear()  # another process
    second = read_model(path)
    assert traced == ["llama_of_tomorrow"]
    assert first.trace is not None
    assert second.trace is not None
    assert not first.family_assumed


def test_a_known_type_is_never_traced(tmp_path, traced):
    assert read_model(write(tmp_path, {**LLAMA_LIKE, "model_type": "llama"})).trace is None
    assert traced == []


def test_code_that_comes_with_a_model_is_never_run(tmp_path, traced):
    config = {**LATENT, "auto_map": {"AutoModelForCausalLM": "modeling.Own"}}
    with pytest.raises(VramwiseError, match="its code comes with the model and is not run"):
        read_model(write(tmp_path, config))
    assert traced == []


def test_a_failure_is_told_and_kept(tmp_path, traced, monkeypatch):
    path = write(tmp_path, LATENT)
    monkeypatch.setattr(tracing, "_run_child", lambda text: {"failed": "KeyError: 'x'"})
    with pytest.raises(VramwiseError, match="could not be traced: KeyError: 'x'"):
        read_model(path)
    tracing._model.cache_clear()
    monkeypatch.setattr(tracing, "_run_child", lambda text: pytest.fail("traced again"))
    with pytest.raises(VramwiseError, match="could not be traced"):
        read_model(path)


def test_a_damaged_cache_is_traced_again(tmp_path, traced):
    path = write(tmp_path, LATENT)
    read_model(path)
    for kept in (tmp_path / "cache" / "vramwise" / "traces").iterdir():
        kept.write_text("{")
    tracing._model.cache_clear()
    assert read_model(path).trace is not None
    assert len(traced) == 2


def test_a_trace_is_a_model_by_itself(not_installed):
    model = read_model(TRACE)
    assert model.model_type == "nemotron"
    assert model.trace is not None
    assert model.trace.source.startswith("transformers 5.")


def damaged():
    """Traces with one thing wrong."""
    whole = TRACE.read_text()

    def changed(change):
        document = json.loads(whole)
        change(document)
        return document

    def first(document):
        return next(iter(document["modes"].values()))["all"]["layers"][0]

    yield changed(lambda d: d.pop("layers"))
    yield changed(lambda d: d["kinds"].append(7))
    yield changed(lambda d: d["sizes"].update(hidden_size=2**40))
    yield changed(lambda d: d["sizes"].update(trace="x"))
    yield changed(lambda d: d["parameters"][0].__setitem__(1, ["x"]))
    yield changed(lambda d: d.update(modes={}))
    yield changed(lambda d: first(d)["steps"][0].update(k="run"))
    yield changed(lambda d: first(d)["steps"][0]["o"][0].__setitem__(3, [["@", 1, 0, 1, 1, 0]]))
    yield changed(lambda d: first(d)["steps"][0]["n"].update(s=[99]))
    yield changed(lambda d: first(d)["steps"][0].update(i=[None]))


@pytest.mark.parametrize("document", list(damaged()))
def test_a_damaged_trace_is_refused_in_one_sentence(document):
    with pytest.raises(VramwiseError, match=r"^here: is not a whole trace"):
        model_from_trace(document, name="x", source="here")


def test_a_trace_of_another_format_is_refused():
    with pytest.raises(VramwiseError, match="trace the model again"):
        model_from_trace({"format": 0}, name="x", source="here")


@pytest.mark.parametrize("changes", [{}, {"adapter": "lora", "lora_r": 8}, {"gradient_checkpointing": True}])
def test_a_trace_is_predicted_without_torch(tmp_path, changes, not_installed):
    settings = {"base_model": str(TRACE), "micro_batch_size": 2, "sequence_len": 1024, "bf16": True, **changes}
    config = {**settings, "datasets": [{"path": "x", "type": "alpaca"}], "optimizer": "adamw_torch_fused"}
    path = tmp_path / "config.yml"
    path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in config.items()))
    found = vramwise.predict(path, gpu="24GB").prediction
    assert any("traced from transformers 5." in one for one in map(str, found.assumptions))
    assert found.needs.peak_reserved_bytes > 100 * 1024**2


def test_torch_and_transformers_are_asked_for_their_versions_only(monkeypatch):
    monkeypatch.delenv(tracing.SWITCH)
    found = {"transformers": "5.22.2", "torch": "2.13.0+cpu"}
    monkeypatch.setattr(tracing, "version", found.__getitem__)
    assert tracing.installed() == ("5.22.2", "2.13.0+cpu")
    tracing.installed.cache_clear()
    found["transformers"] = "4.57.6"
    assert tracing.installed() is None


@pytest.mark.parametrize(
    "exchange",
    [
        {"handed": ["t999"]},
        {"takes": [["key", "t999"]]},
        {"leaves": [["key", "t999"]]},
        {"between": {"steps": [], "given": ["t999"], "parameters": [], "result": "t999"}},
    ],
)
def test_tensors_that_layers_exchange_must_be_there(exchange):
    document = json.loads(TRACE.read_text())
    for mode in document["modes"].values():
        for way in mode.values():
            way["layers"][0] |= exchange
    with pytest.raises(VramwiseError, match="is not a whole trace"):
        model_from_trace(document, name="m", source="m.json")
