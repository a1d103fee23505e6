"""output-in-model-folder"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="output-in-model-folder",
    severity=Severity.WARNING,
    topic="config",
    bad="base_model: ./models/llama\noutput_dir: ./models/llama\nlearning_rate: 0.0002\nmicro_batch_size: 2\n",
    good="base_model: ./models/llama\noutput_dir: ./outputs/llama\nlearning_rate: 0.0002\nmicro_batch_size: 2\n",
    beyond_trainer="Trainers save into any writable folder and replace existing files.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
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
