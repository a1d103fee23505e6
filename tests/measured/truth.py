"""Measured runs as `RunSpec` and `ModelSpec`: the settings of a truth case, in the words of the product."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vramwise.ghost.hardware import Hardware, hardware_of
from vramwise.models.config import model_from_config
from vramwise.types import (
    SETTINGS,
    Config,
    Document,
    GpuSpec,
    ModelSpec,
    Origin,
    Release,
    RunSpec,
    Stack,
    Target,
    in_sections,
    neutral,
)

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
BUNDLED = ROOT / "tests" / "data" / "truth" / "h200-dev.jsonl"

H200 = GpuSpec(
    name="NVIDIA H200",
    vendor="nvidia",
    memory_bytes=143156 * 1024**2,
    capability=(9, 0),
    bf16=True,
    fp8=True,
    multiprocessors=132,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One measured run: how it was set up and what it took, in MiB."""

    name: str
    run: RunSpec
    model: ModelSpec
    steps: int
    widths: list[int] | None
    eval_widths: list[int] | None
    measured: dict[str, Any]
    folder: Path
    hardware: Hardware

    @property
    def trace_path(self) -> Path | None:
        """The recorded allocator events, where they are at hand: beside the measured figures or in the shared
        folder."""
        for folder in (self.folder, SHARED / "traces"):
            path = folder / str(self.measured.get("trace"))
            if path.is_file():
                return path
        return None


def cases(path: Path | None = None) -> list[Case]:
    """All runs of a truth file; by default the shared one, or the copy beside the tests."""
    if path is None:
        path = SHARED / "truth" / "h200-dev.jsonl"
        if not path.is_file():
            path = BUNDLED
    return [_case(json.loads(line), path.parent) for line in path.read_text().splitlines() if line.strip()]


# What each version of liger-kernel that runs were measured with does.
_LIGER = {"0.8.1": "never", "0.8.4": "uncast", "0.8.5": "always"}


def _case(record: dict[str, Any], folder: Path) -> Case:
    case = record["case"]
    model = model_from_config({**case["model"], "random_weights": True}, name=case["name"], source="truth case")
    widths = record.get("batch_widths") or {}
    return Case(
        name=record["name"],
        run=run_of(case).changed(liger_chunks_in_place=_LIGER[record.get("liger_kernel", "0.8.1")]),
        model=model,
        steps=case["steps"],
        widths=widths.get("train"),
        eval_widths=widths.get("eval"),
        measured=record,
        folder=folder,
        hardware=hardware_for(case),
    )


def hardware_for(case: dict[str, Any]) -> Hardware:
    """The card, or one that lacks the kernels and workspaces that the case went without."""
    card = hardware_of(H200, (2, 11))
    without = {"cudnn": (), "flash": ("cudnn",), "mem_efficient": ("cudnn", "flash")}[case.get("sdp_backend", "cudnn")]
    workspace = card.matmul_workspace_bytes
    if "cublas_workspace" in case:
        # ":4096:2:16:8": 2 buffers of 4096 KiB and 8 of 16
        sizes = [int(part) for part in case["cublas_workspace"].strip(":").split(":")]
        workspace = 1024 * sum(size * count for size, count in zip(sizes[::2], sizes[1::2], strict=True))
    kernels = tuple([kernel for kernel in card.attention if kernel not in without])
    return replace(card, attention=kernels, matmul_workspace_bytes=workspace)


def run_of(case: dict[str, Any]) -> RunSpec:
    """The run that a case's settings describe."""
    document = Document(path="", text="", values={}, spans={})
    origin = Origin(kind="option", why="measured with this version")
    stack = Stack(releases={"torch": Release(version="2.11.0", origin=origin)})
    adapter = case.get("adapter")
    kwargs = case.get("gradient_checkpointing_kwargs") or {}
    liger = bool(case.get("liger"))
    accumulation = case.get("gradient_accumulation_steps", 1)
    variable = case.get("lengths") == "variable"
    weights, autocast = case.get("weights_dtype", "bf16"), case.get("autocast", "bf16")
    said: dict[str, Any] = {
        "base_model": case["name"],
        "micro_batch_size": case["micro_batch_size"],
        "gradient_accumulation_steps": accumulation,
        "effective_batch_size": case["micro_batch_size"] * accumulation,
        "sequence_len": case["sequence_len"],
        "pad_to_sequence_len": case.get("pad_to_sequence_len", True),
        "pad_multiple": case.get("pad_multiple", 64) if variable else 1,
        "constant_shapes": not variable,
        "evaluates": "eval_steps" in case,
        "eval_batch_size": case.get("eval_batch_size"),
        "eval_sequence_len": case["sequence_len"],
        "eval_steps": case.get("eval_steps"),
        "precision": weights if autocast == "none" else autocast,
        "weights_dtype": weights,
        "autocast": autocast != "none",
        "fp32_embeddings": case.get("fp32_embeddings", False),
        "adapter": adapter,
        "lora_r": case.get("lora_r"),
        "lora_alpha": 32.0 if adapter else None,
        "lora_dropout": case.get("lora_dropout", 0.0),
        "lora_target_linear": "lora_target_modules" not in case,
        "lora_target_modules": tuple(case.get("lora_target_modules", ("all-linear",))),
        "lora_modules_to_save": tuple(case.get("lora_modules_to_save", ())),
        "use_dora": case.get("peft_use_dora", False),
        "quantization": "4bit" if case.get("load_in_4bit") else "8bit" if case.get("load_in_8bit") else None,
        "optimizer": case.get("optimizer", "adamw_torch_fused"),
        "max_grad_norm": case.get("max_grad_norm", 1.0),
        "gradient_checkpointing": case.get("gradient_checkpointing", False),
        "recompute": case.get("gradient_checkpointing", False),
        "checkpointing_reentrant": kwargs.get("use_reentrant", True),
        "attn_implementation": case.get("attn_implementation", "sdpa"),
        "loss_kernel": "liger_fused_linear" if liger else "stock",
        "liger": ("rope", "rms_norm", "glu_activation") if liger else (),
        "allocator": case.get("alloc_conf", ""),
        "quantised_base_prepared": "all",
    }
    neutrals = {name: neutral(name)[0] for name in SETTINGS if name not in said and name != "unfollowed"}
    return RunSpec(
        trainer="transformers",
        trainer_title="",
        config=Config(document, {}, {}),
        target=Target(gpu=H200, gpus=1, stack=stack, alloc_env={}),
        origins={},
        keys={},
        model_type=None,
        duplicate_keys=(),
        added_variables={},
        **in_sections({**neutrals, **said, "unfollowed": ()}),
    )
