"""What an installed Axolotl says about each config of a folder: its own validation, for a card that need not be there.

    python scripts/axolotl_verdicts.py FOLDER sm90-1gpu tests/data/axolotl-0.21-verdicts-sm90-1gpu.json

Run it with the Python that has the Axolotl in question; a CPU build of torch will do. Axolotl 0.20 and later declare
Python 3.12, but their source is valid on 3.11 (`pip install --no-deps --ignore-requires-python`, its dependencies
pinned beside it): the recorded verdicts were made on 3.11 with torch 2.13.0.
Goes as far as `validate_config`: what Axolotl decides later, with the model's config at hand, is not in the verdict.
A package that Axolotl imports but this machine lacks makes a refusal that says nothing about the config; such a record
has the type ImportError, ModuleNotFoundError or "is not installed" in its text.

Each record: file, ok, errors (type, place, first line), unknown (keys that Axolotl drops), resolved (as text, or null).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import pkgutil
import sys
import tempfile
from pathlib import Path
from typing import Any

CARDS: dict[str, dict[str, Any]] = {
    "sm90-1gpu": {"bf16": True, "fp8": True, "tf32": True, "n_gpu": 1, "compute_capability": "sm_90"},
    "sm75-2gpu": {"bf16": False, "fp8": False, "tf32": False, "n_gpu": 2, "compute_capability": "sm_75"},
}
RESOLVED = (
    "pad_to_sequence_len",
    "eval_sample_packing",
    "bf16",
    "tf32",
    "gradient_checkpointing",
    "activation_offloading",
    "attn_implementation",
    "lora_mlp_kernel",
    "optimizer",
    "fsdp_version",
)


def verdict(path: Path, capabilities: dict[str, Any]) -> dict[str, Any]:
    """One file's record. Must run in a process of its own: plugins leave traces in Axolotl's modules."""
    import yaml
    from axolotl.utils.dict import DictDefault

    record: dict[str, Any] = {"file": path.name, "ok": False, "errors": [], "unknown": None}
    record["resolved"] = dict.fromkeys(RESOLVED)
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    try:
        resolved = _validated(DictDefault(values), capabilities)
    except Exception as refusal:  # whatever Axolotl raises is its verdict
        record["errors"] = _errors(refusal)
        return record
    record["ok"] = True
    record["unknown"] = sorted(set(values) - _known_keys(values))
    record["resolved"] = {key: str(resolved.get(key)) for key in RESOLVED}
    return record


def _validated(cfg: Any, capabilities: dict[str, Any]) -> dict[str, Any]:
    """The steps of `axolotl.cli.config.load_cfg` up to the validation, with a card of our choice."""
    import torch
    from axolotl.cli.config import prepare_plugins
    from axolotl.utils.config import validate_config

    prepare_plugins(cfg)
    version = str(torch.__version__).split("+", maxsplit=1)[0]
    return dict(validate_config(cfg, capabilities=capabilities, env_capabilities={"torch_version": version}))


def _known_keys(values: dict[str, Any]) -> set[str]:
    """Every spelling that the schema of this config reads, the keys of its plugins included."""
    from axolotl.integrations import base
    from axolotl.integrations.config import merge_input_args
    from axolotl.utils.schemas.config import AxolotlInputConfig

    built_in = getattr(base, "get_builtin_plugins", lambda: getattr(base, "BUILTIN_PLUGINS", ()))()
    model = merge_input_args()[1] if values.get("plugins") or built_in else AxolotlInputConfig
    known = set(model.model_fields)
    for field in model.model_fields.values():
        known |= {field.alias} if field.alias else set()
        known |= {name for name in getattr(field.validation_alias, "choices", ()) if isinstance(name, str)}
    return known


def _errors(refusal: Exception) -> list[list[str]]:
    from pydantic import ValidationError

    if isinstance(refusal, ValidationError):
        return [
            [error["type"], ".".join(map(str, error["loc"])), _first_line(error["msg"])] for error in refusal.errors()
        ]
    return [[type(refusal).__name__, "", _first_line(str(refusal))]]


def _first_line(text: str) -> str:
    return (text.splitlines() or [""])[0]


def _isolated(job: tuple[Path, dict[str, Any]]) -> dict[str, Any]:
    """In a folder of its own: Axolotl opens DeepSpeed files by relative path and may write beside them."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        record = verdict(*job)
        os.chdir("/")
    return record


def _load_plugins() -> None:
    """Import Axolotl's own plugins once, before the forks; one that cannot be imported fails again where it is used."""
    import axolotl.integrations

    for folder in pkgutil.iter_modules(axolotl.integrations.__path__, "axolotl.integrations."):
        with contextlib.suppress(Exception):
            importlib.import_module(folder.name)
            importlib.import_module(f"{folder.name}.args")


def main(folder: Path, card: str, target: Path) -> None:
    """Write the records of all files in a folder."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "AXOLOTL_DO_NOT_TRACK": "1", "WORLD_SIZE": "1"}
    import axolotl.cli.config
    import axolotl.utils.config  # noqa: F401  loaded once, here; each file is judged in a fork

    _load_plugins()
    files = sorted(folder.resolve().glob("*.y*ml"), key=lambda path: path.name)
    jobs = [(path, CARDS[card]) for path in files]
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        records = pool.map(_isolated, jobs, chunksize=1)
    rows = ",\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    target.write_text(f"[\n{rows}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
