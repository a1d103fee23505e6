"""From config.json to ModelSpec: what each type means, what absent fields mean, and what is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightly import examples
from vramwise.errors import VramwiseError
from vramwise.models.config import model_from_config
from vramwise.models.families import all_model_types
from vramwise.models.parameters import parameters
from vramwise.types import ModelSpec

BASE = {
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 128,
}


def spec(model_type="llama", **fields):
    return model_from_config({"model_type": model_type, **BASE, **fields}, name="m", source="some/config.json")


class TestMeaning:
    def test_llama(self):
        model = spec()
        assert (model.family, model.family_assumed, model.head_dim) == ("llama", False, 16)
        assert model.layer_types == ("full_attention",) * 4
        flags = (model.qkv_bias, model.attention_out_bias, model.mlp_bias, model.tie_word_embeddings)
        assert not any(flags)

    def test_absent_fields_are_transformers_defaults(self):
        model = model_from_config(
            {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34}, name="", source=""
        )
        assert (model.num_attention_heads, model.num_key_value_heads, model.head_dim) == (8, 4, 256)
        assert (model.vocab_size, model.tie_word_embeddings) == (262208, True)
        assert model.activation == "gelu_pytorch_tanh"

    def test_no_longest_context_is_no_reason_to_refuse(self):
        fields = {name: value for name, value in BASE.items() if name != "max_position_embeddings"}
        model = model_from_config({"model_type": "a_new_one", **fields}, name="m", source="some/config.json")
        assert model.max_position_embeddings == 131_072

    def test_null_is_not_the_default(self):
        assert spec("mistral", sliding_window=None).sliding_window is None
        assert spec("mistral").sliding_window == 4096
        assert spec(num_key_value_heads=None).num_key_value_heads == 4

    def test_windows(self):
        assert spec("mistral").layer_types == ("sliding_attention",) * 4
        assert spec("qwen2").sliding_window is None
        late = spec("qwen2", use_sliding_window=True, max_window_layers=3)
        assert late.layer_types == ("full_attention",) * 3 + ("sliding_attention",)
        assert spec("gemma2").layer_types == ("sliding_attention", "full_attention") * 2
        assert spec("olmo3").layer_types == ("sliding_attention",) * 3 + ("full_attention",)
        assert spec("gpt_oss", num_local_experts=4).sliding_window == 128

    def test_written_layer_types_win(self):
        written = ["full_attention", "sliding_attention", "full_attention", "full_attention"]
        assert spec("gemma2", layer_types=written).layer_types == tuple(written)

    def test_layers_without_rotary_embeddings(self):
        assert spec("smollm3").nope_layers == (3,)
        assert spec("smollm3", no_rope_layers=[1, 0, 1, 0]).nope_layers == (1, 3)
        assert spec("cohere2").nope_layers == (3,)
        assert spec("exaone4").nope_layers == (3,)
        assert spec("exaone4", sliding_window=None).nope_layers == ()

    def test_biases(self):
        assert spec("qwen2").qkv_bias
        assert not spec("qwen2").attention_out_bias
        assert spec("qwen3", attention_bias=True).attention_out_bias
        assert spec("phi").lm_head_bias

    def test_rotary_fraction(self):
        assert spec("phi").rotary_fraction == 0.5
        assert spec("gpt_neox", rotary_pct=0.125).rotary_fraction == 0.125
        assert spec("phi3", partial_rotary_factor=0.75).rotary_fraction == 0.75
        assert spec("glm", rope_parameters={"partial_rotary_factor": 0.3}).rotary_fraction == 0.3
        assert spec("falcon", alibi=True).rotary_fraction == 0.0

    def test_dropouts(self):
        model = spec("gpt2", n_embd=64, n_layer=4, n_head=4)
        assert (model.attention_dropout, model.hidden_dropout, model.embedding_dropout) == (0.1, 0.1, 0.1)
        assert spec("phi", resid_pdrop=0.1).hidden_dropout == 0.1
        assert spec("seed_oss").hidden_dropout == 0.1

    def test_first_gemma_files_mean_the_tanh_approximation(self):
        assert spec("gemma", hidden_act="gelu").activation == "gelu_pytorch_tanh"

    def test_gpt2_names(self):
        config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 512, "vocab_size": 100}
        model = model_from_config(config, name="", source="")
        assert (model.hidden_size, model.num_hidden_layers, model.intermediate_size) == (64, 3, 256)
        assert model.max_position_embeddings == 512

    def test_falcon_blocks(self):
        old, new = spec("falcon"), spec("falcon", new_decoder_architecture=True, num_kv_heads=2)
        sequential = spec("falcon", multi_query=False, parallel_attn=False)
        assert (old.num_key_value_heads, old.norms_per_block, old.parallel_residual) == (1, 1, True)
        assert (new.num_key_value_heads, new.norms_per_block, new.parallel_residual) == (2, 2, True)
        assert (sequential.num_key_value_heads, sequential.norms_per_block, sequential.parallel_residual) == (
            4,
            2,
            False,
        )

    def test_experts(self):
        mixtral = spec("mixtral", num_local_experts=4)
        assert (mixtral.num_experts, mixtral.num_experts_per_tok, mixtral.moe_intermediate_size) == (4, 2, 112)
        qwen = spec("qwen3_moe", num_experts=8, mlp_only_layers=[0], decoder_sparse_step=2)
        assert qwen.dense_layers == (0, 2)
        glm = spec("glm4_moe", n_routed_experts=8, n_shared_experts=2, moe_intermediate_size=48)
        assert (glm.shared_expert_intermediate_size, glm.dense_layers) == (96, (0,))

    def test_how_the_checkpoint_is_stored(self):
        four = {"quant_method": "bitsandbytes", "load_in_4bit": True}
        assert spec(quantization_config=four).checkpoint_quantization == "bitsandbytes_4bit"
        assert spec(quantization_config={"quant_method": "gptq"}).checkpoint_quantization == "gptq"
        assert spec().checkpoint_quantization is None


class TestMultimodal:
    def test_the_text_model_of_a_multimodal_config(self):
        config = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", **BASE}}
        model = model_from_config(config, name="", source="")
        assert (model.family, model.tie_word_embeddings, model.tower) == ("gemma3", True, ())

    def test_the_tower_is_counted(self):
        vision = {"model_type": "siglip_vision_model", "hidden_size": 48, "num_hidden_layers": 2}
        config = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", **BASE}, "vision_config": vision}
        model = model_from_config(config, name="", source="")
        names = [parameter.name for parameter in parameters(model)]
        assert names[0] == "model.vision_tower.embeddings.patch_embedding.weight"
        assert "model.language_model.layers.0.self_attn.q_proj.weight" in names
        assert model.left_out == ""

    def test_an_unknown_tower_is_said_to_be_left_out(self):
        text = {"model_type": "qwen2", **BASE}
        config = {"model_type": "brand_new_vl", "text_config": text, "vision_config": {"model_type": "some_vit"}}
        model = model_from_config(config, name="", source="")
        assert model.left_out == "vision_config (some_vit)"
        assert not model.family_assumed

    def test_an_older_file_has_the_text_fields_beside_the_tower(self):
        config = {"model_type": "qwen2_5_vl", **BASE, "vision_config": {"model_type": "qwen2_5_vl", "depth": 2}}
        model = model_from_config(config, name="", source="")
        assert model.left_out == ""
        assert model.qkv_bias
        assert sum("visual.blocks" in name for name, _, _ in model.tower) == 2 * 12


class TestAssumed:
    def test_unknown_types_with_llama_fields(self):
        model = spec("brand_new", attention_bias=True)
        assert (model.family, model.family_assumed, model.model_type) == ("llama", True, "brand_new")
        assert model.qkv_bias

    def test_nothing_is_assumed_about_sizes(self):
        with pytest.raises(VramwiseError, match=r"some/config\.json: 'intermediate_size' is missing"):
            spec("brand_new", intermediate_size=None)

    @pytest.mark.parametrize(
        ("names", "intermediate"),
        [
            ({"n_embd": 64, "n_layer": 3, "n_head": 8, "n_inner": 96, "n_positions": 512}, 96),
            ({"d_model": 64, "num_layers": 3, "num_heads": 8, "d_ff": 96, "max_seq_len": 512}, 96),
            ({"n_embed": 64, "n_layers": 3, "n_heads": 8, "ffn_hidden_size": 96, "seq_length": 512}, 96),
            ({"n_embd": 64, "n_layer": 3, "n_head": 8, "n_inner": None, "n_ctx": 512}, 256),
        ],
    )
    def test_other_names_of_sizes_are_read(self, names, intermediate):
        config = {"model_type": "brand_new", "vocab_size": 100, **names}
        model = model_from_config(config, name="", source="some/config.json")
        assert (model.hidden_size, model.num_hidden_layers, model.num_attention_heads) == (64, 3, 8)
        assert (model.intermediate_size, model.max_position_embeddings) == (intermediate, 512)

    def test_usual_names_come_first(self):
        assert spec("brand_new", d_model=4096, n_layer=99).hidden_size == spec("brand_new").hidden_size

    def test_listed_types_have_no_other_names(self):
        config = {"model_type": "llama", **{key: value for key, value in BASE.items() if key != "hidden_size"}}
        with pytest.raises(VramwiseError, match=r"'hidden_size' (must be a multiple|is missing)"):
            model_from_config({**config, "hidden_dim": 64}, name="", source="some/config.json")

    @pytest.mark.parametrize(
        ("field", "value", "what"),
        [
            ("is_encoder_decoder", True, "an encoder beside its decoder"),
            ("kv_lora_rank", 512, "latent attention"),
            ("linear_num_value_heads", 32, "linear attention"),
            ("mamba_d_state", 128, "state-space layers"),
            ("conv_L_cache", 3, "convolution layers"),
        ],
    )
    def test_other_blocks_are_refused_not_guessed(self, field, value, what):
        with pytest.raises(VramwiseError, match=f"model_type 'brand_new' has {what}"):
            spec("brand_new", **{field: value})

    def test_unknown_mixtures_are_refused(self):
        with pytest.raises(
            VramwiseError, match="'model_type' 'brand_new' has 8 experts, in a block that is not supported"
        ):
            spec("brand_new", num_experts=8, num_experts_per_tok=2)

    def test_unknown_layer_types_are_refused(self):
        with pytest.raises(VramwiseError, match="not supported: linear_attention"):
            spec("brand_new", layer_types=["linear_attention", *["full_attention"] * 3])


class TestRefused:
    @pytest.mark.parametrize("field", ["hidden_size", "num_hidden_layers"])
    def test_missing(self, field):
        config = {key: value for key, value in {"model_type": "llama", **BASE}.items() if key != field}
        with pytest.raises(VramwiseError, match=rf"^some/config\.json: '{field}' is missing$"):
            model_from_config(config, name="", source="some/config.json")

    @pytest.mark.parametrize(
        ("field", "value", "message"),
        [
            ("hidden_size", "64", "must be a whole number, not '64'"),
            ("hidden_size", 64.5, "must be a whole number"),
            ("hidden_size", True, "must be a whole number"),
            ("hidden_size", [64], "must be a whole number"),
            ("hidden_size", 0, "must be between 1 and"),
            ("vocab_size", -1, "must be between 1 and"),
            ("vocab_size", 10**30, "must be between 1 and"),
            ("num_hidden_layers", 10**6, "must be between 1 and 320, not 1000000"),
            ("head_dim", 1, "leaves 1 for rotary embeddings"),
            ("attention_dropout", float("nan"), "must be a number of a usable size"),
            ("attention_dropout", float("inf"), "must be a number of a usable size"),
            ("hidden_size", float("nan"), "must be a whole number, not nan"),
            ("hidden_size", float("inf"), "must be a whole number, not inf"),
            ("hidden_size", 1e300, "must be a whole number, not 1e+300"),
            ("num_key_value_heads", 3, "must divide num_attention_heads: 4 / 3"),
            ("num_attention_heads", 6, "must be a multiple of num_attention_heads: 64 / 6"),
            ("tie_word_embeddings", "yes", "must be true or false, not 'yes'"),
            ("attention_dropout", 2, "must be between 0 and 1"),
            ("attention_dropout", "0.1", "must be a number"),
            ("hidden_act", 3, "must be a string"),
            ("model_type", 3, "must be a string"),
            ("rope_parameters", [], "must be a mapping"),
            ("quantization_config", "gptq", "must be a mapping"),
        ],
    )
    def test_wrong_values_name_field_and_file(self, field, value, message):
        with pytest.raises(VramwiseError) as caught:
            spec(**{field: value})
        assert str(caught.value).startswith("some/config.json: '")
        assert message in str(caught.value)

    def test_a_number_of_thousands_of_digits_is_not_written_out(self):
        with pytest.raises(VramwiseError, match="not a number of thousands of digits"):
            spec(vocab_size=10**5000)

    @pytest.mark.parametrize("value", ["sliding", [1], ["full_attention"]])
    def test_layer_types(self, value):
        with pytest.raises(VramwiseError, match="'layer_types'"):
            spec("gemma2", layer_types=value)

    def test_long_values_are_cut(self):
        with pytest.raises(VramwiseError) as caught:
            spec(hidden_size="x" * 10_000)
        assert len(str(caught.value)) < 150


_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_TYPES = all_model_types()
_NAMES = sorted({name for _, kind in _TYPES.values() for name in (*kind.defaults, *kind.switches.values())})


@settings(max_examples=examples(300), deadline=None)
@given(
    model_type=st.sampled_from([*_TYPES, "brand_new", "gemma3", "llava", "mistral3"]),
    changes=st.dictionaries(
        st.sampled_from([*_NAMES, *BASE, "layer_types", "text_config", "vision_config", "rope_scaling", "n_layer"]),
        _JUNK | st.integers(-1, 200),
        max_size=4,
    ),
)
def test_any_config_gives_a_spec_or_a_clear_error(model_type, changes):
    message = "file"
    try:
        model = model_from_config({"model_type": model_type, **BASE, **changes}, name="m", source="file")
        assert isinstance(model, ModelSpec)
        assert parameters(model)
    except VramwiseError as error:
        message = str(error)
    assert message.startswith("file")
