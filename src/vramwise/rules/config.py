"""Rules for every trainer about the file itself: its keys, paths, and the versions and card it is meant for."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from vramwise.facts.torch import LAST_CUDA_12, oldest_card
from vramwise.facts.torch import shown as version_words
from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import START, DuplicateKey, RunSpec, Severity
from vramwise.variants.versions import unknown_versions


@rule(
    id="output-in-model-folder",
    severity=Severity.WARNING,
    bad="base_model: ./models/llama\noutput_dir: ./models/llama\nlearning_rate: 0.0002\nmicro_batch_size: 2\n",
    good="base_model: ./models/llama\noutput_dir: ./outputs/llama\nlearning_rate: 0.0002\nmicro_batch_size: 2\n",
    beyond_trainer="Trainers save into any writable folder and replace existing files.",
)
def output_in_model_folder(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """output_dir and the base model's folder are the same, or one is inside the other.

    The trainer saves config.json, the tokenizer's files, a README.md and, without an adapter, the weights under the
    same names as the base model: the base is overwritten and cannot be used again. If one folder is inside the other,
    a base that is a checkpoint may be replaced or deleted, and copies of the model include the training output.
    `vramwise train` refuses to replace files that it did not write. Paths are compared as written.
    """
    output, base = run.output_dir, run.base_model
    if not output or not base:
        return
    relation = _relation(_parts(output), _parts(base), base_is_path=_is_path(base))
    if relation:
        yield Hit(field="output_dir", message=f"output_dir {output} {relation}; set a different output_dir")


def _relation(output: tuple[str, ...], base: tuple[str, ...], *, base_is_path: bool) -> str:
    if output == base:
        return "is the folder of the base model: training replaces its files, and without an adapter also its weights"
    if not base_is_path or _start(output) != _start(base):
        return ""
    if base[: len(output)] == output:
        return "contains the base model: saving or deleting checkpoints there can destroy it"
    if output[: len(base)] == base:
        return "is inside the folder of the base model: the model's files and the training output get mixed"
    return ""


def _start(parts: tuple[str, ...]) -> str:
    """Return where a path starts: at the root or a home folder; "" for the working folder."""
    return f"/{parts[0]}" if parts and (not parts[0] or parts[0][0] == "~") else ""


def _is_path(name: str) -> bool:
    """Whether a name can only be a path: a hub model is `owner/name`."""
    return name.startswith((".", "/", "~", "\\")) or "\\" in name or ":" in name or name.count("/") > 1


def _parts(path: str) -> tuple[str, ...]:
    """Return the folders of a path without "." parts; empty for the working folder."""
    normal = posixpath.normpath(path.strip().replace("\\", "/"))
    return tuple(part for part in normal.split("/") if part != ".") if normal != "/" else ("",)


_TOP = "base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\n"


@rule(
    id="duplicate-key",
    severity=Severity.WARNING,
    bad="base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 2\nlearning_rate: 0.0002\nmicro_batch_size: 8\n",
    good="base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 8\nlearning_rate: 0.0002\n",
    beyond_trainer="YAML forbids duplicate keys, but the parser that trainers use silently takes the last value.",
)
def duplicate_key(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A key appears twice in the file, and only the last value counts.

    The parser silently takes the last value, so changing the first one has no effect. If the two differ, a run may
    need a different amount of memory than the line you look at suggests. Of 184 public configs, 20 have such a key.
    """
    for found in run.duplicate_keys:
        yield Hit(place=found.last, message=_duplicate_message(found))


def _duplicate_message(found: DuplicateKey) -> str:
    first, last = found.first.line, found.last.line
    where = f"on line {first} and again on line {last}" if first != last else f"twice on line {first}"
    return f"duplicate key '{found.key}' ({where}): only the last value counts; remove one of them"


@rule(
    id="placeholder-left",
    severity=Severity.WARNING,
    bad=f"{_TOP}datasets:\n  - path: your/dataset\n    type: alpaca\n",
    good=f"{_TOP}datasets:\n  - path: tatsu-lab/alpaca\n    type: alpaca\n",
    beyond_trainer="The trainer looks for a dataset of that name and stops when there is none.",
)
def placeholder_left(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A placeholder stands where your data belongs.

    `vramwise new` without `--data` writes `your/dataset`. Put the path or the hub id of your data there, and check that
    the type beside it fits its columns. `vramwise new … --data FILE` writes both.
    """
    for key in run.placeholders:
        message = f"{key} is a placeholder: name your data there, or the run stops when it loads it"
        yield Hit(field=key, message=message)


@rule(
    id="unknown-version",
    severity=Severity.INFO,
    bad=f"{_TOP}micro_batch_size: 2\n",
    good=f"{_TOP}micro_batch_size: 2\n",
    options="--with torch==1.13.0",
    good_options="--with torch==2.13.0",
    comes_first=True,
    beyond_trainer="The trainer knows its own version; it is vramwise that does not.",
)
def unknown_version(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A package of this run is newer or older than every release that vramwise knows.

    The version comes from `--with`, `--stack`, the file, the lists of versions beside it, or the environment. The run
    is read as with the nearest known release: settings may have other defaults, keys may have come or gone, and a step
    may take other memory. So the verdict keeps a margin, and what depends on the release is a warning instead of an
    error, whose fix is made only on request. Commands that are suggested keep your version.
    """
    if run.target.stack.unknown:
        said = unknown_versions(run.target.stack)
        yield Hit(place=START, message=f"{said}; what depends on the version is uncertain")


@rule(
    id="card-without-kernels",
    explains={"card-without-kernels"},
    severity=Severity.WARNING,
    also=(Severity.ERROR,),
    needs={"gpu"},
    bad=f"{_TOP}bf16: auto\n",
    good=f"{_TOP}bf16: auto\n",
    options="--gpu v100-32gb --torch 2.13",
    good_options="--gpu t4 --torch 2.13",
    beyond_trainer="torch starts on such a card, with a warning, and stops at the first kernel.",
)
def card_without_kernels(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The default build of this torch has no kernels for the card.

    From torch 2.8 on, the default build leaves out Maxwell and Pascal (P100, P40, GTX 10xx), from 2.11 on also Volta
    (V100). The first kernel on such a card stops with "no kernel image is available for execution on the device". Up to
    torch 2.14, install the CUDA 12.6 build, which still has these kernels. torch 2.15 has no such build: use an older
    release, or a Turing card (T4) or newer. `fit` does not name such cards as the smallest that will do.
    """
    gpu, torch = run.target.gpu, run.target.torch
    if gpu is None or gpu.capability is None or gpu.capability >= oldest_card(torch):
        return
    known = run.target.stack.releases["torch"].origin.kind != "assumed"
    if torch <= LAST_CUDA_12:
        remedy = "install its CUDA 12.6 build"
    else:
        remedy = f"install torch {version_words(LAST_CUDA_12)} or older, in its CUDA 12.6 build"
    yield Hit(
        place=START,
        message=(
            f"the default build of torch {version_words(torch)} has no kernels for {gpu.name} "
            f"(sm_{gpu.capability[0]}{gpu.capability[1]}): the run stops at the first one; {remedy}"
        ),
        severity=Severity.ERROR if known and torch > LAST_CUDA_12 else None,
    )
