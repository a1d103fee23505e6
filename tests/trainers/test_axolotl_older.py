"""What Axolotl before 0.18 does otherwise with memory, release by release, as its source says."""

import pytest

from opened import make_target, resolve
from vramwise.cli.main import main
from vramwise.documents.document import parse_document
from vramwise.trainers.axolotl.resolve.allocator import added_variables

PACKED = "sample_packing: true\nattn_implementation: flash_attention_2\n"
LORA = "adapter: lora\nlora_dropout: 0\n"


def run_of(version, text, **target):
    document = parse_document("config.yml", ("base_model: org/some-model\n" + text).encode())
    return resolve(document, make_target(env={}, look_around=False, versions=(f"axolotl=={version}",), **target))


@pytest.mark.parametrize(
    ("version", "text", "field", "value"),
    [
        ("0.9.2", "sample_packing: true\nflash_attention: true\n", "shapes.pad_to_sequence_len", False),
        ("0.10.0", "sample_packing: true\nflash_attention: true\n", "shapes.pad_to_sequence_len", True),
        (
            "0.9.2",
            "sample_packing: true\nsdp_attention: true\nmultipack_real_batches: false\n",
            "shapes.packing_rows",
            "micro",
        ),
        (
            "0.10.0",
            "sample_packing: true\nsdp_attention: true\nmultipack_real_batches: false\n",
            "shapes.packing_rows",
            "one",
        ),
        ("0.11.0", "sample_packing: true\nflex_attention: true\n", "shapes.packing_rows", "micro"),
        ("0.12.0", "sample_packing: true\nflex_attention: true\n", "shapes.packing_rows", "one"),
        ("0.17.0", "sample_packing: true\nsdp_attention: true\n", "kernels.varlen_sdpa", False),
        ("0.18.0", "sample_packing: true\nsdp_attention: true\n", "kernels.varlen_sdpa", True),
        ("0.9.2", LORA, "adapter.fused_lora", ()),
        ("0.10.0", LORA, "adapter.fused_lora", ("mlp", "qkv", "o")),
        ("0.15.0", "adapter: lora\n", "adapter.fused_lora", ()),
        ("0.15.0", "adapter: lora\nlora_dropout: 0.1\nlora_mlp_kernel: true\n", "adapter.fused_lora", ()),
        ("0.16.0", "adapter: lora\nlora_dropout: 0.1\n", "adapter.fused_lora", ("mlp", "qkv", "o", "embedding")),
        ("0.14.0", LORA + "trust_remote_code: true\n", "adapter.fused_lora", ("mlp", "qkv", "o")),
        ("0.15.0", LORA + "trust_remote_code: true\n", "adapter.fused_lora", ()),
        ("0.16.1", "xformers_attention: true\n", "precision.fp32_embeddings", True),
        ("0.17.0", "xformers_attention: true\n", "precision.fp32_embeddings", False),
        ("0.5.0", "flash_attention: true\n", "precision.fp32_embeddings", False),
        ("0.7.0", "base_model_config: x\n", "optimizer.name", "adamw_hf"),
        ("0.8.0", "base_model_config: x\n", "optimizer.name", "adamw_torch_fused"),
        ("0.11.0", "gradient_checkpointing: offload\n", "savings.activation_offloading", "legacy"),
        ("0.12.0", "gradient_checkpointing: offload\n", "savings.activation_offloading", "stream"),
        ("0.11.0", "activation_offloading: true\n", "savings.activation_offloading", "off"),
        ("0.5.0", "gradient_checkpointing: true\n", "savings.checkpointing_reentrant", True),
        ("0.9.2", "val_set_size: 0.1\neval_steps: 10\n", "evaluation.eval_on_start", False),
        ("0.10.0", "val_set_size: 0.1\neval_steps: 10\n", "evaluation.eval_on_start", True),
        ("0.12.1", "excess_length_strategy: truncate\n", "shapes.long_rows", "drop"),
        ("0.12.2", "excess_length_strategy: truncate\n", "shapes.long_rows", "cut"),
    ],
)
def test_a_release_decides_by_its_own_source(version, text, field, value):
    part, _, name = field.partition(".")
    assert getattr(getattr(run_of(version, text), part), name) == value


@pytest.mark.parametrize(
    ("version", "text", "kind"),
    [
        ("0.11.0", "fsdp_config:\n  offload_params: true\n", "ddp"),
        ("0.12.0", "fsdp_config:\n  offload_params: true\n", "fsdp1"),
        ("0.8.0", "fsdp:\n- full_shard\nfsdp_config:\n  fsdp_version: 2\n", "fsdp1"),
        ("0.9.0", "fsdp:\n- full_shard\nfsdp_config:\n  fsdp_version: 2\n", "fsdp2"),
    ],
)
def test_fsdp_by_release(version, text, kind):
    assert run_of(version, text, gpus=2).sharding.kind == kind


@pytest.mark.parametrize(
    ("version", "torch", "name", "value"),
    [
        ("0.12.2", "2.9.1", "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,roundup_power2_divisions:16"),
        ("0.16.1", "2.9.1", "PYTORCH_ALLOC_CONF", "expandable_segments:True,roundup_power2_divisions:16"),
        ("0.17.0", "2.9.1", "PYTORCH_ALLOC_CONF", "expandable_segments:True"),
    ],
)
def test_allocator_variables_by_release(version, torch, name, value):
    target = make_target(env={}, look_around=False, versions=(f"axolotl=={version}", f"torch=={torch}"))
    assert added_variables(target) == {name: value}


def test_old_flags_and_keys_are_no_findings_of_an_old_release(tmp_path, capsys, monkeypatch):
    path = tmp_path / "config.yml"
    path.write_text(
        "base_model: org/some-model\ndatasets:\n- path: org/rows\n  type: alpaca\nflash_attention: true\n"
        "attn_implementation: flash_attention_2\nsave_safetensors: false\neval_table_size: 2\nmicro_batch_size: 1\n"
        "num_epochs: 1\nlearning_rate: 0.0001\noutput_dir: out\nval_set_size: 0.1\n"
    )
    said = {}
    for version in ("0.12.2", "0.18.0"):
        monkeypatch.setattr("sys.argv", ["vramwise", "check", str(path), "--with", f"axolotl=={version}"])
        with pytest.raises(SystemExit):
            main()
        said[version] = capsys.readouterr().out
    older, newer = said.values()
    for rule in ("legacy-attention-flag", "removed-key"):
        assert rule not in older
        assert rule in newer
    assert "internal-error" not in older
