"""Which causal language model types of the installed transformers have a family, can be traced, or why not.

    python scripts/model_types.py ROWS.jsonl [TYPE …]     # traces each type's default config, one row a type
    python scripts/model_types.py ROWS.jsonl --write      # writes docs/model-types.md from the rows

A type that has no row yet is traced in a forked process of at most two minutes of CPU time; named types are traced
again.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "scripts")]

from typical_configs import FIELDS, typical_config  # noqa: E402
from vramwise.models.families import find_type  # noqa: E402
from vramwise.models.templates import template_types, without_template  # noqa: E402

PAGE = ROOT / "docs" / "model-types.md"
_MODE = "bf16, autocast"
_SIZES_BY_VALUES = "sizes in its code depend on values, as on how many tokens an expert gets"
_REASONS = (
    ("Differs", "[operations depend on the length](#operations-that-depend-on-the-length)"),
    ("it took more than", "[operations depend on the length](#operations-that-depend-on-the-length)"),
    ("DynamicOutputShape", _SIZES_BY_VALUES),
    ("split_with_sizes", _SIZES_BY_VALUES),
    ("a leaf Variable", "its code changes the embeddings in place, which adapters do not allow"),
    ("axial_pos_shape", "it trains at one length only, which its config names"),
    ("ImportError", "its vision tower needs libraries that are not installed"),
    ("has no attribute 'num_hidden_layers'", "its language model is a part of another config"),
    ("has no attribute 'dropout'", "its language model is a part of another config"),
    ("hidden_size_per_layer_input must be 0", "it drafts for another model, and is not trained by itself"),
    ("The set of layer types producing a cache", "it drafts for another model, and is not trained by itself"),
    ("inputs_embeds and shared_kv_states", "it drafts for another model, and is not trained by itself"),
    ("is not a whole trace", "some of its layers do not run without an image"),
    ("DbrxAttentionConfig", "this release of transformers does not run it"),
)
_SECONDS, _MEMORY = 120, 12 * 1024**3


def types() -> list[str]:
    """Every type that `AutoModelForCausalLM` builds."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def traced(name: str) -> dict[str, Any]:
    """What tracing the typical config of a type gives."""
    from vramwise.models.recorder.document import document
    from vramwise.models.traces import model_from_trace

    started = time.process_time()
    try:
        config = {**typical_config(name).to_dict(), "model_type": name}
        found = document(config, [_MODE])
        model_from_trace(found, name=name, source=name)
        layers = found["modes"][_MODE]["all"]["layers"]
        row: dict[str, Any] = {"ok": True, "kinds": len(layers), "steps": [len(layer["steps"]) for layer in layers]}
    except Exception as error:
        row = {"ok": False, "error": f"{type(error).__name__}: {str(error)[:300]}"}
    return {**row, "s": round(time.process_time() - started, 1)}


def forked(name: str) -> dict[str, Any]:
    """The same in a process of its own."""
    out, into = os.pipe()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.write(into, json.dumps(traced(name), default=str).encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as file:
        text = file.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"ok": False, "error": f"it took more than {_SECONDS} s or too much memory"}


def reason(error: str) -> str:
    """Why a type cannot be traced, in a sentence."""
    if error.startswith("Lost"):
        return error.removeprefix("Lost: ")
    for words, why in _REASONS:
        if words in error:
            return why
    words = " ".join(error.split())
    return f"its default config does not run: `{words[:90].replace('|', '/').replace('`', '')}`"


def page(rows: dict[str, dict[str, Any]], version: str) -> str:
    """The page's text."""
    lines, shipped, without = [], template_types(), without_template()
    for name, row in sorted(rows.items()):
        known = find_type(name) or find_type(f"{name}_text")
        trace = (
            f"{row['kinds']} kind{'s' * (row['kinds'] > 1)} of layer" if row["ok"] else f"no: {reason(row['error'])}"
        )
        ships = "yes" if name in shipped else without.get(name, "")
        lines.append(f"| {name} | {known[0].name if known else '—'} | {trace} | {ships} |")
    families = sum(find_type(name) is not None or find_type(f"{name}_text") is not None for name in rows)
    unknown = [row for name, row in rows.items() if not (find_type(name) or find_type(f"{name}_text"))]
    given = ", ".join(
        f"`{name}` ({', '.join(f'`{key}`' for key in fields)})" for name, fields in sorted(FIELDS.items())
    )
    return f"""# Causal language model types of transformers {version}

Of {len(rows)} types, {families} have a family that was written by hand, and {sum(row["ok"] for row in unknown)} of the
other {len(unknown)} can be [traced](tracing.md). The rows come from `scripts/model_types.py`, which traces each type's
default config. Fields without a usable default were set as published configs have them: {given}.
{sum(name in shipped for name in rows)} types have a [trace that ships](tracing.md#shipped-traces); the last column says
why others have none.

| model type | family | trace | ships |
|---|---|---|---|
{chr(10).join(lines)}

## Operations that depend on the length
These types have scans or chunks that transformers writes as Python loops over the tokens, or add tokens of their own. A
trace holds one list of operations for all lengths, so they cannot be traced. If no family describes such a type,
vramwise gives no prediction for it. If kernels for the scan are installed (mamba-ssm, causal-conv1d,
flash-linear-attention), training runs those instead.
"""


def main() -> None:
    """Trace what is asked for, or write the page."""
    path, *more = sys.argv[1:]
    rows = {}
    if Path(path).is_file():
        rows = {row["type"]: row for row in map(json.loads, Path(path).read_text().splitlines())}
    import transformers

    if more == ["--write"]:
        PAGE.write_text(page(rows, transformers.__version__))
        return
    transformers.logging.set_verbosity_error()
    from vramwise.models.recorder.passes import warm_up

    warm_up()  # once for all processes
    with Path(path).open("a") as file:
        for name in types():
            if name in more or (not more and name not in rows):
                row = {"type": name, **forked(name)}
                file.write(json.dumps(row) + "\n")
                file.flush()
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
