"""Finding a model: on disk, in the catalogue, in the hub's cache, online only when asked; what is said when not found."""

import json
import subprocess
import sys

import pytest

from vramwise.errors import VramwiseError
from vramwise.models.config import model_from_config
from vramwise.models.known import catalogue_ids, catalogue_shapes, find_model, from_catalogue, read_model
from vramwise.models.parameters import parameter_count

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """An empty Hugging Face cache of our own."""
    for name in ("HF_HOME", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "hub-cache"
    monkeypatch.setenv("HF_HUB_CACHE", str(folder))
    return folder


def write_config(folder, **changes):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps({**CONFIG, **changes}))
    return path


def put_in_cache(cache, name, revision, main=None, **changes):
    folder = cache / f"models--{name.replace('/', '--')}"
    write_config(folder / "snapshots" / revision, **changes)
    if main is not None:
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(main)


class TestOnDisk:
    def test_a_folder_and_a_file(self, tmp_path):
        path = write_config(tmp_path / "mine")
        for given in (tmp_path / "mine", path):
            model = find_model(str(given))
            assert (model.hidden_size, model.source) == (64, str(path))

    def test_relative_to_the_config_file(self, tmp_path):
        write_config(tmp_path / "models" / "mine")
        assert find_model("./models/mine", base_dir=tmp_path).vocab_size == 100
        with pytest.raises(VramwiseError, match="is unknown"):
            find_model("./models/mine", base_dir=tmp_path / "elsewhere")

    def test_the_working_folder_goes_before_the_configs(self, tmp_path, monkeypatch):
        """As in Axolotl; a folder there that holds no model does not hide the one beside the config."""
        here = write_config(tmp_path / "models" / "mine", vocab_size=100)
        write_config(tmp_path / "configs" / "models" / "mine", vocab_size=200)
        monkeypatch.chdir(tmp_path)
        assert find_model("./models/mine", base_dir=tmp_path / "configs").vocab_size == 100
        here.unlink()
        assert find_model("./models/mine", base_dir=tmp_path / "configs").vocab_size == 200

    def test_the_name_stays_as_it_was_written(self, tmp_path):
        write_config(tmp_path / "mine")
        assert find_model("mine", base_dir=tmp_path).name == "mine"

    def test_a_local_folder_goes_before_the_catalogue(self, tmp_path):
        write_config(tmp_path / "Qwen" / "Qwen3-8B")
        assert find_model("Qwen/Qwen3-8B", base_dir=tmp_path).hidden_size == 64

    def test_a_folder_that_only_shares_the_name_does_not_hide_the_id(self, tmp_path):
        (tmp_path / "gpt2").mkdir()
        assert find_model("gpt2", base_dir=tmp_path).source == "catalogue"

    def test_a_folder_without_config_says_so(self, tmp_path):
        (tmp_path / "empty").mkdir()
        with pytest.raises(VramwiseError, match=r"no config\.json in the folder"):
            find_model("empty", base_dir=tmp_path)

    @pytest.mark.parametrize(
        "name", ["a\0b", "x" * 5000, "", "  ", "..", "/", "~nobody-here/x", "a/b/c/d", "model.bin"]
    )
    def test_odd_names_are_errors_not_crashes(self, name):
        with pytest.raises(VramwiseError):
            find_model(name)


class TestUnreadable:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "not valid JSON"),
            (b"{", "not valid JSON"),
            (b"\xff\xfe\x00", "not valid JSON"),
            (b"[]", "must hold a JSON object, not list"),
            (b"null", "must hold a JSON object"),
            (b"[" * 100_000, "not valid JSON"),
            (b'{"hidden_size": ' + b"9" * 5000 + b"}", "not valid JSON"),
            (b"{}", "'model_type' is missing"),
        ],
    )
    def test_names_the_file(self, tmp_path, content, message):
        path = tmp_path / "config.json"
        path.write_bytes(content)
        with pytest.raises(VramwiseError, match=message) as caught:
            find_model(str(tmp_path))
        assert str(path) in str(caught.value)

    def test_a_huge_file_is_not_parsed(self, tmp_path):
        path = tmp_path / "config.json"
        with path.open("wb") as file:
            file.truncate(17 * 2**20)
        with pytest.raises(VramwiseError, match="too large"):
            find_model(str(tmp_path))

    def test_a_file_that_is_gone(self, tmp_path):
        with pytest.raises(VramwiseError, match="cannot be read"):
            read_model(tmp_path / "config.json")


class TestCatalogue:
    def test_case_and_spaces_do_not_matter(self):
        model = find_model(" meta-LLAMA/llama-3.2-1b ")
        assert (model.name, model.source) == ("meta-LLAMA/llama-3.2-1b", "catalogue")
        assert parameter_count(model) == 1_235_814_400

    def test_mirrors_and_finetunes_have_the_shape(self):
        one, other = find_model("NousResearch/Meta-Llama-3-8B"), find_model("meta-llama/Meta-Llama-3-8B-Instruct")
        assert parameter_count(one) == parameter_count(other) == 8_030_261_248

    def test_quantised_checkpoints_say_so(self):
        assert find_model("TheBloke/Llama-2-7B-GPTQ").checkpoint_quantization == "gptq"
        assert find_model("openai/gpt-oss-20b").checkpoint_quantization == "mxfp4"
        assert find_model("unsloth/llama-3-8b-bnb-4bit").checkpoint_quantization == "bitsandbytes_4bit"
        assert find_model("unsloth/llama-3-8b").checkpoint_quantization is None

    def test_no_id_appears_twice(self):
        ids = [name.lower() for name in catalogue_ids()]
        assert len(ids) == len(set(ids)) >= 500

    @pytest.mark.parametrize("shape", catalogue_shapes(), ids=lambda shape: shape["ids"][0])
    def test_counts_agree_with_the_published_ones(self, shape):
        model = model_from_config(shape["config"], name="", source="")
        assert not model.family_assumed
        assert not model.left_out or model.model_type in ("gemma3n_text", "gemma4_text", "mimo")
        if "published" in shape:
            assert parameter_count(model) == shape["published"]

    def test_every_shape_names_its_source(self):
        from vramwise.bundled import bundled_json

        sources = bundled_json("models/models.json")["sources"]
        assert {shape["source"] for shape in catalogue_shapes()} <= set(sources)

    def test_not_in_the_catalogue(self):
        assert from_catalogue("nobody/nothing") is None


class TestHubCache:
    def test_main_decides(self, cache):
        put_in_cache(cache, "me/model", "aaa", hidden_size=32)
        put_in_cache(cache, "me/model", "bbb", main="aaa")
        model = find_model("me/model")
        assert model.hidden_size == 32
        assert model.source.endswith("config.json")

    def test_without_main_any_snapshot_will_do(self, cache):
        put_in_cache(cache, "me/model", "ccc")
        assert find_model("me/model").hidden_size == 64

    def test_a_broken_main_falls_back(self, cache):
        put_in_cache(cache, "me/model", "ccc", main="gone")
        assert find_model("me/model").hidden_size == 64

    def test_the_variables_of_huggingface_hub(self, monkeypatch, tmp_path):
        put_in_cache(tmp_path / "home" / "hub", "me/model", "aaa", main="aaa")
        monkeypatch.delenv("HF_HUB_CACHE")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        assert find_model("me/model").hidden_size == 64

    def test_a_name_cannot_leave_the_cache(self, cache, tmp_path):
        put_in_cache(cache, "me/model", "aaa")
        with pytest.raises(VramwiseError):
            find_model("../models--me--model", base_dir=tmp_path)


class TestUnknown:
    def test_says_how_to_go_on(self):
        with pytest.raises(VramwiseError, match=r"Point to its config\.json"):
            find_model("nobody/nothing-at-all")

    @pytest.mark.parametrize(
        ("written", "meant"),
        [
            ("meta-llama/Lama-3.2-1B", "meta-llama/Llama-3.2-1B"),
            ("mistralai/Mistra-7b-v01", "mistralai/Mistral-7B-v0.1"),
            ("someone/phi-4x", "microsoft/phi-4"),
        ],
    )
    def test_suggests_near_ids(self, written, meant):
        with pytest.raises(VramwiseError, match="Did you mean") as caught:
            find_model(written)
        assert meant in str(caught.value)


def test_a_cold_look_up_is_quick():
    """In a fresh interpreter, the catalogue's JSON included; processor time, because the machine may be busy."""
    code = (
        "import time; from vramwise.models.known import find_model; start = time.process_time();"
        "find_model('Qwen/Qwen3-8B'); print(time.process_time() - start)"
    )
    times = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout) for _ in range(3)
    ]
    assert min(times) < 0.02


@pytest.mark.parametrize(
    ("mirror", "original", "quantised"),
    [
        ("unsloth/Mistral-Small-Instruct-2409", "mistralai/Mistral-Small-Instruct-2409", None),
        ("unsloth/Magistral-Small-2509-unsloth-bnb-4bit", "mistralai/Magistral-Small-2509", "bitsandbytes_4bit"),
        ("unsloth/functiongemma-270m-it", "google/functiongemma-270m-it", None),
    ],
)
def test_a_mirror_has_the_shape_of_what_it_copies(mirror, original, quantised):
    found, copied = from_catalogue(mirror), from_catalogue(original)
    assert (found.hidden_size, found.num_hidden_layers) == (copied.hidden_size, copied.num_hidden_layers)
    assert found.checkpoint_quantization == quantised
    assert from_catalogue("unsloth/no-such-model") is None
