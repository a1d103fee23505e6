"""Axolotl's own rules about values: types, combinations that it refuses, and schedules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from vramwise.documents.scalar import inline
from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, set_key, unsafe
from vramwise.rules.rows import row
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.plugins import repairs_diffusion
from vramwise.trainers.axolotl.refusals import refusals
from vramwise.trainers.axolotl.schema import Schema, known_releases, schema_of, schema_of_version
from vramwise.trainers.axolotl.schema.pins import admits, shown_range
from vramwise.trainers.value_types import parse_type
from vramwise.types import Fix, RunSpec, Severity, join_key

_NUMBERS = {"int", "float", "number_text"}
# Mappings that are passed on unchanged: text in them is not converted to numbers.
_HANDED_ON = ("lr_scheduler_kwargs",)


@rule(
    id="number-as-string",
    severity=Severity.INFO,
    also=(Severity.WARNING,),
    bad="base_model: meta-llama/Llama-3.2-1B\nlearning_rate: 5e-5\n",
    good="base_model: meta-llama/Llama-3.2-1B\nlearning_rate: 5.0e-05\n",
)
def number_as_string(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A number that YAML reads as text.

    Axolotl reads YAML 1.1, where a number with an exponent needs a dot and a sign: `5e-5` is text, `5.0e-05` is a
    number. Axolotl converts the text for keys of its schema, so these work. Other tools that read the file get text,
    and so do mappings that Axolotl passes on unchanged (`lr_scheduler_kwargs`): there the scheduler stops with a
    TypeError.

    The fix writes the same number so that every reader sees a number. Values that Axolotl converts are reported only
    with `--pedantic`, or if you name the rule with `--select`.
    """
    values, schema = run.config.document.values, schema_of(run)
    for key, value in values.items():
        if key in _HANDED_ON and isinstance(value, dict):
            yield from _handed_on(key, value)
        elif isinstance(value, dict) and f"block({key})" in (schema.key_type(key) or ""):
            for name, held in value.items():
                if isinstance(name, str):
                    yield from _typed(schema, (key, name), held)
        else:
            yield from _typed(schema, (key,), value)


def _typed(schema: Schema, path: tuple[str, ...], value: Any) -> Iterator[Hit]:
    key = join_key(path)
    kind = schema.key_type(key)
    number = _number(value)
    if number is None or kind is None or not _takes_only_numbers(kind) or schema.check_type(key, value):
        return
    yield Hit(
        f"{path[-1]} {value!r} is text in YAML 1.1, not a number: Axolotl converts it, other tools may not",
        key,
        safe(f"Write it as a number: {inline(number)}", set_key(key, number)),
        pedantic=True,
    )


def _handed_on(key: str, block: dict[Any, Any]) -> Iterator[Hit]:
    for name, value in block.items():
        number = _number(value)
        if isinstance(name, str) and number is not None:
            path = join_key((key, name))
            yield Hit(
                f"{name} {value!r} is text in YAML 1.1, not a number, and {key} is passed on unconverted",
                path,
                safe(f"Write it as a number: {inline(number)}", set_key(path, number)),
                severity=Severity.WARNING,
            )


def _takes_only_numbers(kind: str) -> bool:
    alternatives, _ = parse_type(kind)
    return {one.kind for one in alternatives} <= _NUMBERS


def _number(value: Any) -> int | float | None:
    if not isinstance(value, str):
        return None
    for read in (int, float):
        try:
            return read(value)
        except ValueError:
            continue
    return None


@rule(
    id="refused-combination",
    bad="base_model: meta-llama/Llama-3.2-1B\nwarmup_steps: 10\nwarmup_ratio: 0.1\n",
    good="base_model: meta-llama/Llama-3.2-1B\nwarmup_steps: 10\n",
)
def refused_combination(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Axolotl refuses two keys together, or one without the other.

    These combinations do not affect memory, but each stops the run at the start. Examples: two warm-up lengths,
    deduplication of a stream, `peft_layers_pattern` without `peft_layers_to_transform`, options of one RL method with
    another, and a tokenizer option that mistral-common does not support. The message names the keys and the reason.
    Delete one key, or add the missing one.
    """
    yield from refusals(run)
    yield from _target_patterns(run)


def _target_patterns(run: RunSpec) -> Iterator[Hit]:
    written = run.config.get("lora_target_modules")
    for index, pattern in enumerate(written if isinstance(written, list) else ()):
        fault = _fault(pattern) if isinstance(pattern, str) else ""
        if fault:
            message = f"Axolotl refuses lora_target_modules '{pattern}': not a valid pattern ({fault})"
            yield Hit(message, f"lora_target_modules.{index}")


@lru_cache(maxsize=32_768)  # more than a config may list: a search checks the same list repeatedly
def _fault(pattern: str) -> str:
    """Return why Python cannot compile a pattern; "" if it can."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return str(error)
    return ""


_OPTIONS = "torch_compile_options"
# Axolotl 0.19, utils/schemas/enums.py
_ALLOWED = frozenset(
    {
        "coordinate_descent_tuning",
        "coordinate_descent_check_all_directions",
        "shape_padding",
        "epilogue_fusion",
        "max_autotune_gemm",
        "fx_graph_cache",
        "assume_aligned_inputs",
        "comprehensive_padding",
        "decompose_mem_bound_mm",
        "triton.cudagraphs",
    }
)


@rule(
    id="torch-compile-options-misused",
    also=(Severity.WARNING,),
    bad="base_model: meta-llama/Llama-3.2-1B\ntorch_compile_options:\n  shape_padding: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\ntorch_compile: true\ntorch_compile_options:\n  shape_padding: true\n",
)
def torch_compile_options_misused(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`torch_compile_options` is set without `torch_compile`, or with an option that Axolotl refuses.

    The options set flags of torch's inductor and have no effect on a model that is not compiled, so Axolotl stops. It
    accepts ten flags and refuses any other. With `torch_compile: auto` on a torch before 2.5.1 nothing is compiled, and
    Axolotl drops the options with a warning.
    """
    options = run.config.get(_OPTIONS)
    if not isinstance(options, dict):
        return
    for name in options:
        if name not in _ALLOWED:
            key = join_key((_OPTIONS, name))
            yield Hit(
                f"Axolotl refuses {name!r} in {_OPTIONS}: it is not one of the {len(_ALLOWED)} supported flags",
                key,
                unsafe(f"Remove {name}", delete_key(key)),
            )
    if run.kernels.torch_compile:
        return
    if run.config.get("torch_compile") == "auto":
        yield Hit(
            f"torch_compile: auto does not compile on torch {_compile_version(run)}: {_OPTIONS} is dropped",
            _OPTIONS,
            safe(f"Remove {_OPTIONS}, which is dropped", delete_key(_OPTIONS)),
            severity=Severity.WARNING,
        )
        return
    yield Hit(
        f"Axolotl refuses {_OPTIONS} while torch_compile is off",
        _OPTIONS,
        unsafe("Compile the model: torch_compile: true", insert_key("torch_compile", True, beside=_OPTIONS)),
    )


def _compile_version(run: RunSpec) -> str:
    return ".".join(str(part) for part in run.target.torch)


@rule(
    id="torch-too-old",
    severity=Severity.WARNING,
    also=(Severity.INFO,),
    bad="base_model: meta-llama/Llama-3.2-1B\n",
    good="base_model: meta-llama/Llama-3.2-1B\n",
    options="--torch 2.9",
    good_options="--torch 2.14",
    beyond_trainer="Axolotl at most warns about an old torch; the supported range is in its requirements.",
)
def torch_too_old(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The target's torch is outside the range that this version of Axolotl requires.

    Every release requires a range of torch versions: 0.19 requires 2.11–2.13, 0.21 requires 2.13 or 2.14. You can
    install another torch by hand, and it often works, but it is untested with that release. Kernels compiled for
    another torch may not load, and defaults that depend on torch may differ from those assumed here.

    Install a torch in the range, or say which Axolotl you run (`--with axolotl==0.19.0`): the message names the newest
    release that supports this torch. If the version of Axolotl is not given, the finding is only a note.
    """
    schema, have = schema_of(run), run.target.stack.parts("torch")
    wanted = schema.pins["torch"]
    if admits(wanted, have):
        return
    takers = [version for version in known_releases() if admits(schema_of_version(version).pins["torch"], have)]
    taker = f"; Axolotl {schema_of_version(takers[-1]).short} supports it" if takers else ""
    shown = ".".join(str(part) for part in have)
    assumed = run.target.stack.releases["axolotl"].origin.kind == "assumed"
    said = run.target.stack.releases["torch"].origin.kind in ("option", "file")
    yield Hit(
        message=f"Axolotl {schema.short} requires torch {shown_range(wanted)}, but this is torch {shown}{taker}",
        severity=Severity.INFO if assumed and not said else None,
    )


_STRATEGIES = ("eval_strategy", "evaluation_strategy", "save_strategy")


@rule(
    id="wrong-type",
    unusable=True,
    bad="base_model: meta-llama/Llama-3.2-1B\nwarmup_steps: 0.1\nlora_modules_to_save: lm_head\n",
    good="base_model: meta-llama/Llama-3.2-1B\nwarmup_ratio: 0.1\nlora_modules_to_save:\n  - lm_head\n",
)
def wrong_type(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A value has a type that its key does not accept.

    Axolotl's schema refuses the file: it contains text instead of a number, a fraction instead of a whole number, a
    mapping instead of a list, or null where a value is required. Values that Axolotl converts itself are not reported:
    "8" and 8.0 are whole numbers, "yes" is true, a quoted number is a number.

    In YAML 1.1 an unquoted `no`, `off` or `yes` is a boolean. Axolotl therefore refuses `eval_strategy: no`: write
    `eval_strategy: "no"`.
    """
    values, schema = run.config.document.values, schema_of(run)
    for key, sentence in schema.type_errors(values):
        found = _value(values, key)
        message, fix = _remedy(run, schema, key, found)
        yield Hit(f"{sentence}{message}: Axolotl refuses the file", key, fix)


def _value(values: dict[str, Any], key: str) -> Any:
    found: Any = values
    for part in key.split("."):
        found = found[part]
    return found


def _remedy(run: RunSpec, schema: Schema, key: str, found: Any) -> tuple[str, Fix | None]:
    """A hint for the message and a fix, if it is clear what is meant."""
    kinds = {one.kind for one in parse_type(schema.key_type(key) or "any")[0]}
    if key in _STRATEGIES and found is False:
        return ' (an unquoted no is false; write "no")', safe('Write "no" in quotes', set_key(key, "no"))
    if key == "warmup_steps" and isinstance(found, float) and 0 < found < 1 and "warmup_ratio" not in run.config:
        edits = (insert_key("warmup_ratio", found, beside=key), delete_key(key))
        return " (use warmup_ratio for a share of the run)", unsafe(f"Set warmup_ratio: {found}", *edits)
    if kinds == {"list"} and isinstance(found, str):
        return "", safe("Make it a list", set_key(key, [found]))
    if "str" in kinds and isinstance(found, int | float) and not isinstance(found, bool):
        return " (quote it)", safe("Quote it", set_key(key, str(found)))
    if key == "tokens" and isinstance(found, dict) and "special_tokens" not in run.config:
        edits = (insert_key("special_tokens", found, beside=key), delete_key(key))
        return " (use special_tokens for named tokens)", unsafe("Rename it to special_tokens", *edits)
    if found is None and key in schema.defaults():
        return f" (default: {schema.defaults()[key]})", safe(f"Delete {key}", delete_key(key))
    return "", None


@rule(
    id="save-schedule-conflict",
    bad="save_strategy: epoch\nsave_steps: 100\n",
    good="save_strategy: steps\nsave_steps: 100\n",
)
def save_schedule_conflict(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The checkpoint schedule contradicts itself.

    One key decides when a checkpoint is saved: `save_steps` (with `save_strategy: steps` or unset), `saves_per_epoch`,
    or `save_strategy` alone. If none is set, a checkpoint is saved after every epoch. Axolotl refuses two keys that
    disagree. `save_strategy: best` saves when a metric improves, so it needs `metric_for_best_model`, usually
    eval_loss.
    """
    strategy, steps = run.config.get("save_strategy"), run.config.get("save_steps")
    if steps and strategy not in (None, "", "steps"):
        message = f"save_strategy {strategy} contradicts save_steps {steps}, which needs save_strategy steps"
        yield Hit(message, "save_strategy", unsafe("Save by steps", set_key("save_strategy", "steps")))
    count = run.config.get("saves_per_epoch")
    if count and steps:
        message = f"save_steps {steps} and saves_per_epoch {count} are two schedules, which Axolotl refuses together"
        yield Hit(message, "saves_per_epoch", unsafe(f"Keep save_steps {steps}", delete_key("saves_per_epoch")))
    if strategy == "best" and not run.config.get("metric_for_best_model") and not repairs_diffusion(run):
        edit = insert_key("metric_for_best_model", "eval_loss", beside="save_strategy")
        message = "Axolotl refuses save_strategy: best without metric_for_best_model"
        yield Hit(message, "save_strategy", unsafe("Compare checkpoints by eval_loss", edit))


def _stream(run: RunSpec) -> str:
    return next((key for key in ("pretraining_dataset", "streaming") if run.config.get(key)), "")


stream_without_max_steps = row(
    id="stream-without-max-steps",
    text="""Streamed data without `max_steps`.

    A stream has no known length, so Axolotl cannot derive the number of steps or the learning-rate schedule from
    epochs. It refuses `pretraining_dataset` and `streaming: true` without `max_steps`.

    Compute the steps for a number of tokens as tokens / (sequence_len × micro_batch_size × gradient_accumulation_steps
    × gpus).
    """,
    bad="pretraining_dataset:\n  - path: allenai/c4\n    name: en\n",
    good="pretraining_dataset:\n  - path: allenai/c4\n    name: en\nmax_steps: 1000\n",
    when=lambda run: _stream(run) and not run.config.get("max_steps"),
    key=_stream,
    message=lambda run: (
        f"Axolotl refuses {_stream(run)} without max_steps: a stream has no length; a step processes up to "
        f"sequence_len {run.shapes.sequence_len} × effective batch {run.batch.effective_batch_size} = "
        f"{run.shapes.sequence_len * run.batch.effective_batch_size:,} tokens"
    ),
)
