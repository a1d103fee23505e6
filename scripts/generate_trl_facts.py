"""Write trainers/trl/schema/*.json from TRL's wheels: the newest in full, older ones as differences.

    pip download --no-deps --only-binary=:all: --python-version 3.12 -d wheels trl==1.16.0 accelerate==1.15.0
    python scripts/generate_trl_facts.py wheels/accelerate-*.whl wheels/trl-*.whl

`keys` are those of every kind of training (ScriptArguments, ModelConfig, DatasetMixtureConfig), `<kind>` those of its
own config, what it overrides of TrainingArguments included; `launch` the options of `accelerate launch` that take a
value, with its type, which is where TRL's command sends what it does not know. Meanings for memory: `trl_meanings.py`.

A new version: run it with all wheels, read the difference, then trainer/*_trainer.py for what behaves differently.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

from argument_schema import Modules, fields_of
from generate_arguments import modules_in, version_of, write_versions
from trl_meanings import MEANINGS

TARGET = Path(__file__).parents[1] / "src/vramwise/trainers/trl/schema"
# kind → its config, and where the script's own arguments stand; ORPO and CPO have no command
KINDS = {
    "sft": ("trainer/sft_config.py", "SFTConfig", None),
    "dpo": ("trainer/dpo_config.py", "DPOConfig", None),
    "kto": ("trainer/kto_config.py", "KTOConfig", None),
    "reward": ("trainer/reward_config.py", "RewardConfig", None),
    "grpo": ("trainer/grpo_config.py", "GRPOConfig", "GRPOScriptArguments"),
    "rloo": ("trainer/rloo_config.py", "RLOOConfig", "RLOOScriptArguments"),
    "distillation": ("trainer/distillation_config.py", "DistillationConfig", None),
    "orpo": ("experimental/orpo/orpo_config.py", "ORPOConfig", None),
    "cpo": ("experimental/cpo/cpo_config.py", "CPOConfig", None),
}
SHARED = ("ScriptArguments", "ModelConfig", "DatasetMixtureConfig")


def facts_of(wheel: Path, launch: dict[str, str]) -> dict[str, Any]:
    """The facts of one version."""
    version = ".".join(map(str, version_of(wheel)))
    shared = Modules(modules_in(wheel, ["trl/scripts/utils.py", "trl/trainer/model_config.py"]))
    keys = {key: value for name in SHARED for key, value in fields_of(name, shared).items()}
    kinds = {kind: own for kind in KINDS if (own := _own(wheel, kind))}
    known = {*keys, *(key for own in kinds.values() for key in own)}
    return {
        "source": f"TRL {version}: trainer/*_config.py, scripts/*.py; accelerate's launch options",
        "keys": keys,
        **kinds,
        "launch": launch,
        "memory": {key: text for key, text in MEANINGS.items() if key in known},
    }


def _own(wheel: Path, kind: str) -> dict[str, Any]:
    path, config, script = KINDS[kind]
    sources = modules_in(wheel, ["trl/trainer/base_config.py", f"trl/{path}"])
    if len(sources) < 2:
        return {}
    own = fields_of(config, Modules(sources))
    if script is not None:
        own |= fields_of(script, Modules(modules_in(wheel, [f"trl/scripts/{kind}.py"])))
    return own


def launch_options(wheel: Path) -> dict[str, str]:
    """Options of `accelerate launch` that take a value, with its type in our grammar."""
    (source,) = modules_in(wheel, ["accelerate/commands/launch.py"])
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("add_argument"):
            words = {word.arg: word.value for word in node.keywords}
            switch = "action" in words and "store" in ast.unparse(words["action"])
            written = [str(one.value) for one in node.args if isinstance(one, ast.Constant)]
            names = [one[2:] for one in written if one.startswith("--") and "-" not in one[2:]]
            found |= {} if switch else dict.fromkeys(names, launch_type(words))
    return dict(sorted(found.items()))


def launch_type(words: dict[str | None, ast.expr]) -> str:
    """What argparse takes: one of some choices, a number, or any text."""
    try:
        choices = ast.literal_eval(words["choices"])
    except (KeyError, ValueError):
        kind = ast.unparse(words["type"]) if "type" in words else "str"
        return kind if kind in ("int", "float") else "str"
    return f"one_of({','.join(map(str, choices))})"


def main() -> None:
    """All wheels that are named; accelerate's among them."""
    wheels = [Path(name) for name in sys.argv[1:]]
    accelerate = next(wheel for wheel in wheels if wheel.name.startswith("accelerate-"))
    launch = launch_options(accelerate)
    versions = sorted((wheel for wheel in wheels if wheel.name.startswith("trl-")), key=version_of)
    write_versions(TARGET, {".".join(map(str, version_of(one))): facts_of(one, launch) for one in versions})


if __name__ == "__main__":
    main()
