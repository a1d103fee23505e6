"""An inference engine beside the policy needs a share of the card that its weights fit into."""

import json

import pytest

GRPO = (
    "# GRPO\nmodel_name_or_path: Qwen/Qwen2.5-7B-Instruct\ndataset_name: trl-lib/tldr\nreward_funcs: [accuracy_reward]\nuse_peft: true\n"
    "dtype: bfloat16\nuse_vllm: true\nvllm_mode: {mode}\nvllm_gpu_memory_utilization: {share}\nload_in_4bit: {packed}\n"
)


@pytest.mark.parametrize(
    ("mode", "share", "packed", "stops"),
    [
        ("colocate", 0.1, "false", True),
        ("colocate", 0.2, "false", False),
        ("colocate", 0.1, "true", False),
        ("colocate", 0.04, "true", True),
        ("server", 0.1, "false", False),
    ],
)
def test_a_share_below_the_weights_stops_the_run(vramwise, tmp_path, mode, share, packed, stops):
    path = tmp_path / "grpo.yml"
    path.write_text(GRPO.format(mode=mode, share=share, packed=packed))
    said = json.loads(vramwise("predict", path, "--gpu", "h100", "--format", "json").stdout)["verdict"]
    assert (said["kind"] == "stops" and "vLLM gets" in said["text"]) is stops
