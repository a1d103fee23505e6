"""Files that say how a run is spread over cards: accelerate's YAML and FSDP's JSON, named by a config of TRL."""

import json

import yaml
from tests.fuzz.keys import BASES
from tests.fuzz.mutate import bytes_changed, lines_changed, nested, value_changed
from tests.fuzz.schedule import text_of
from tests.fuzz.targets import add
from tests.fuzz.targets.making_configs import odd_line, write_model

_ACCELERATE = (
    {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP",
        "mixed_precision": "bf16",
        "num_processes": 4,
        "fsdp_config": {
            "fsdp_version": 2,
            "fsdp_offload_params": True,
            "fsdp_activation_checkpointing": True,
            "fsdp_reshard_after_forward": "FULL_SHARD",
            "fsdp_state_dict_type": "FULL_STATE_DICT",
        },
        "parallelism_config": {"parallelism_config_tp_size": 2, "cp_size": 1},
    },
    {
        "distributed_type": "DEEPSPEED",
        "mixed_precision": "fp16",
        "deepspeed_config": {"zero_stage": 3, "offload_param_device": "cpu", "offload_optimizer_device": "none"},
    },
    {"distributed_type": "DEEPSPEED", "deepspeed_config": {"deepspeed_config_file": "launch.json"}},
)
_FSDP = {
    "version": 2,
    "fsdp_offload_params": True,
    "cpu_offload": False,
    "reshard_after_forward": True,
    "state_dict_type": "SHARDED_STATE_DICT",
    "activation_checkpointing": True,
    "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"],
}


def _accelerate(rng):
    values = rng.choice(_ACCELERATE)
    if rng.random() < 0.01:
        return b"{" * rng.choice((100, 3000, 20_000))
    if rng.random() < 0.6:
        return yaml.safe_dump(value_changed(rng, values), allow_unicode=True).encode("utf-8", "replace")
    text = yaml.safe_dump(values)
    if rng.random() < 0.6:
        return lines_changed(rng, text, yaml.safe_dump(rng.choice(_ACCELERATE)), odd_line).encode("utf-8", "replace")
    return bytes_changed(rng, text.encode())


def _fsdp(rng):
    if rng.random() < 0.03:
        return json.dumps({"version": nested(rng.choice((100, 500)))}).encode()
    data = json.dumps(value_changed(rng, _FSDP)).encode()
    return bytes_changed(rng, data) if rng.random() < 0.2 else data


def _run(line, file, *words):
    def run(bench, data):
        write_model(bench)
        bench.write(file, data)
        bench.command(words[0], bench.write("config.yml", text_of(BASES["trl"]) + line), "--gpus", "4", *words[1:])

    return run


def _all(line, file):
    return {
        "check": _run(line, file, "check", "--show-resolved"),
        "card": _run(line, file, "check", "--gpu", "h100"),
        "predict": _run(line, file, "predict", "--trainer", "trl:dpo"),
    }


add(
    name="accelerate",
    about="the accelerate YAML that a config of TRL names → `check`, `predict`",
    extension="yaml",
    make=_accelerate,
    checks=_all("accelerate_config: launch.yaml\n", "launch.yaml"),
)
add(
    name="fsdp",
    about="the FSDP JSON that `fsdp_config` names → `check`, `predict`",
    extension="json",
    make=_fsdp,
    checks=_all("fsdp: full_shard auto_wrap\nfsdp_config: fsdp.json\n", "fsdp.json"),
)
