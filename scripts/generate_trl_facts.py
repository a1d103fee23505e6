"""Facts about TRL by release, for trainers/trl/schema; `releases.py` writes them.

`keys` are those of every kind of training (ScriptArguments, ModelConfig, DatasetMixtureConfig), `<kind>` those of its
own config, what it overrides of TrainingArguments included, `constructors` what each trainer itself takes; `launch` the
options of `accelerate launch` that take a value, with its type, which is where TRL's command sends what it does not
know. Meanings for memory: `trl_meanings.py`.
"""

from __future__ import annotations

import ast
from typing import Any

from argument_schema import Modules, fields_of, signature_of
from registry import Archive

# kind → config, trainer and where the script's own arguments stand; ORPO and CPO have no command
KINDS = {
    "sft": ("SFT", None),
    "dpo": ("DPO", None),
    "kto": ("KTO", None),
    "reward": ("Reward", None),
    "grpo": ("GRPO", "GRPOScriptArguments"),
    "rloo": ("RLOO", "RLOOScriptArguments"),
    "distillation": ("Distillation", None),
    "orpo": ("ORPO", None),
    "cpo": ("CPO", None),
}
# An experiment of the same name that was another trainer.
OTHER_EXPERIMENTS = frozenset({"distillation"})
SHARED = ("ScriptArguments", "ModelConfig", "DatasetMixtureConfig")
# Where they stood: since 0.13, in 0.12, and before, in one class a command.
_SHARED_IN = ("trl/scripts/utils.py", "trl/utils.py", "trl/commands/cli_utils.py")


def facts_of(archive: Archive, accelerate: Archive) -> dict[str, Any]:
    """The facts of one release; `accelerate`: what it was installed with."""
    shared = Modules([*archive.first(*_SHARED_IN), *archive.texts("trl/trainer/model_config.py")])
    keys = {key: held for name in SHARED if name in shared.classes for key, held in fields_of(name, shared).items()}
    found = {kind: own for kind in KINDS if (own := _own(archive, kind))}
    taken = {f"{KINDS[kind][0]}Trainer": taken for kind in KINDS if (taken := _constructor(archive, kind))}
    everywhere = {"keys": keys} if keys else {}
    apart = {"commands": commands} if (commands := _commands(archive)) else {}
    return {**everywhere, **found, "constructors": taken, **apart, "launch": launch_options(accelerate)}


def _own(archive: Archive, kind: str) -> dict[str, Any]:
    title, script = KINDS[kind]
    places = (*_places(kind, "config"), "trl/trainer/training_configs.py")
    modules = Modules([*archive.texts("trl/trainer/base_config.py", "trl/trainer/utils.py"), *archive.first(*places)])
    own = fields_of(f"{title}Config", modules) if f"{title}Config" in modules.classes else {}
    if own and script is not None and (text := archive.text(f"trl/scripts/{kind}.py")):
        scripts = Modules([text])
        own |= fields_of(script, scripts) if script in scripts.classes else {}
    return own


def _commands(archive: Archive) -> dict[str, Any]:
    """What the arguments of each command were before they were those of its config: in 0.8 to 0.11."""
    modules = Modules(archive.texts("trl/commands/cli_utils.py"))
    names = {name.lower().removesuffix("scriptarguments"): name for name in modules.classes}
    return {kind: fields_of(names[kind], modules) for kind in KINDS if kind in names}


def _constructor(archive: Archive, kind: str) -> dict[str, Any]:
    name = f"{KINDS[kind][0]}Trainer"
    modules = Modules([*archive.texts("trl/trainer/base_trainer.py"), *archive.first(*_places(kind, "trainer"))])
    return signature_of(name, modules) if name in modules.classes else {}


def _places(kind: str, part: str) -> tuple[str, ...]:
    """Where a kind's code stands, the surest first: what moved to the experiments left an empty class behind."""
    main = f"trl/trainer/{kind}_{part}.py"
    return (main,) if kind in OTHER_EXPERIMENTS else (f"trl/experimental/{kind}/{kind}_{part}.py", main)


def launch_options(accelerate: Archive) -> dict[str, str]:
    """Options of `accelerate launch` that take a value, with its type in our grammar."""
    found = {}
    for node in ast.walk(ast.parse(accelerate.text("accelerate/commands/launch.py") or "")):
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
