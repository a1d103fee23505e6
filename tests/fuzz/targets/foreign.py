"""Files that are not ours, damaged among themselves → `fix`, `check --fix`: whatever they become, not a byte changes.

Unlike the law in `fixes`, which asks the program whose file it is, this one knows: nothing of a config of ours is mixed
in, so that nothing may be written.
"""

from functools import cache

from tests.fuzz.bench import Failure
from tests.fuzz.mutate import bytes_changed, lines_changed, odd_number_text
from tests.fuzz.seeds import SHARED
from tests.fuzz.targets import add
from tests.fuzz.targets.making_configs import odd_yaml

_LEARNING = "learning_rate: 2e-5\nbf16: true\ngradient_accumulation_steps: 4\ngradient_checkpointing: true\n"
_FILES = (
    "site_name: x\nplugins:\n  - search\n  - mkdocstrings: {default: y}\ntheme: {name: material}\n",
    "stages:\n  train:\n    cmd: python train.py\n    params: [micro_batch_size, sequence_len]\n",
    "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config:\n  fsdp_offload_params: false\n"
    "mixed_precision: bf16\nnum_processes: 8\nmachine_rank: 0\n",
    "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: x, image: y, resources: {limits: {nvidia.com/gpu: 1}}}]}\n",
    "on: [push]\njobs:\n  test:\n    runs-on: ubuntu-latest\n    steps: [{run: make}]\n",
    "services:\n  train: {image: x, deploy: {resources: {}}}\nvolumes: {}\n",
    "merge_method: ties\nbase_model: mistralai/Mistral-7B-v0.1\ndtype: bfloat16\nslices: []\nparameters: {weight: 1}\n",
    "zero_optimization: {stage: 3, offload_optimizer: {device: cpu}}\nbf16: {enabled: auto}\n"
    "gradient_accumulation_steps: auto\ntrain_micro_batch_size_per_gpu: auto\n",
    "repos:\n  - repo: https://example.org/x\n    rev: v1\n    hooks: [{id: vramwise}]\n",
    "model: {optimizer: adamw_torch, sequence_len: 4}\ndatasets: [{path: x}]\ntrainer: {micro_batch_size: 1}\n",
    f"num_epochs: 3\noptimizer: adamw_torch\nplugins: []\ndatasets: [x]\n{_LEARNING}",
)


@cache
def _texts():
    found = sorted((SHARED / "corpus").rglob("*accelerate*.y*ml"))
    return [*_FILES, *(path.read_text(encoding="utf-8", errors="replace") for path in found)]


def _odd_line(rng, line):
    key, colon, _ = line.partition(":")
    return f"{key}: {odd_yaml(rng) if rng.random() < 0.7 else odd_number_text(rng)}" if colon else line


def _text(rng):
    text, donor = rng.choice(_texts()), rng.choice(_texts())
    if "base_model" in text + donor:  # mergekit has it too: spliced into another trainer's file it makes one of ours
        donor = text
    if rng.random() < 0.8:
        return lines_changed(rng, text, donor, _odd_line).encode("utf-8", "replace")
    return bytes_changed(rng, text.encode(), donor.encode())


def _run(*words):
    def run(bench, data):
        name = bench.write("config.yml", data)
        bench.command(*words, name)
        if (bench.folder / name).read_bytes() != data:
            raise Failure("fix", "wrote into a file that is not ours")

    return run


add(
    name="foreign",
    about="other tools' YAML, damaged → `fix`, `check --fix`: not a byte of it changes",
    extension="yml",
    make=_text,
    checks={
        "fix": _run("fix"),
        "unsafe": _run("fix", "--unsafe-fixes", "--gpu", "h100", "--gpus", "8"),
        "check": _run("check", "--fix", "--unsafe-fixes"),
    },
)
