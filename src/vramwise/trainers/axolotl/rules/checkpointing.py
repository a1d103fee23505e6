"""Axolotl's own rules about gradient checkpointing and the offloading of activations."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, set_key, unsafe
from vramwise.rules.rows import row
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.trainers.axolotl.spell.edits import choose_reentrant
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes

_REENTRANT = "gradient_checkpointing_kwargs.use_reentrant"


@rule(
    id="ebft-compile-checkpointing",
    also=(Severity.INFO, Severity.WARNING),
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nrl: ebft\nebft:\n  mode: strided\n"
        "gradient_checkpointing: true\ntorch_compile: true\n"
    ),
    good="base_model: meta-llama/Llama-3.2-1B\nrl: ebft\nebft:\n  mode: strided\ngradient_checkpointing: true\n",
)
def ebft_compile_checkpointing(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Strided EBFT with compilation, offloading or non-reentrant checkpointing.

    Strided mode uses flex attention, which compiles itself and carries a block mask. Compiling the whole model changes
    the mask's metadata when a checkpointed layer is recomputed, so Axolotl stops. Without checkpointing the model
    recompiles at every new length. With flex attention, checkpointing must be reentrant (Axolotl sets this itself), and
    Axolotl refuses `activation_offloading: true`.
    """
    if run.objective.rl != "ebft" or run.config.get("ebft.mode") != "strided":
        return
    if run.config.get("torch_compile") is True:
        stops = run.savings.gradient_checkpointing
        why = "would end in a CheckpointError: Axolotl refuses it" if stops else "recompiles at every new length"
        yield Hit(
            f"torch_compile in strided EBFT {'with gradient_checkpointing ' if stops else ''}{why}",
            "torch_compile",
            unsafe("Remove torch_compile: flex attention compiles itself", delete_key("torch_compile")),
            severity=Severity.ERROR if stops else Severity.WARNING,
        )
    if run.kernels.attn_implementation == "flex_attention":
        yield from _flex(run)


def _flex(run: RunSpec) -> Iterator[Hit]:
    if run.savings.gradient_checkpointing and not run.config.get(_REENTRANT):
        refused = run.config.get(_REENTRANT) is False
        yield Hit(
            "strided EBFT on flex_attention needs reentrant checkpointing: Axolotl sets use_reentrant itself",
            _REENTRANT,
            safe("Set use_reentrant: true, as Axolotl does", choose_reentrant(run, True)),
            severity=Severity.WARNING if refused else Severity.INFO,
        )
    if run.config.get("activation_offloading") is True:
        yield Hit(
            "Axolotl refuses activation_offloading: true in strided EBFT on flex_attention",
            "activation_offloading",
            unsafe("Remove activation_offloading", delete_key("activation_offloading")),
        )


_SELECTIVE = "selective_checkpointing"
_MATMULS = ("aten::mm", "aten::addmm", "aten::matmul", "aten::bmm")


@rule(
    id="selective-checkpointing-misused",
    also=(Severity.WARNING,),
    bad="base_model: meta-llama/Llama-3.2-1B\nselective_checkpointing: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nselective_checkpointing: true\ngradient_checkpointing: true\n",
)
def selective_checkpointing_misused(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Selective checkpointing with settings that it does not support.

    Selective checkpointing saves chosen results, such as attention's, and recomputes the rest. It needs non-reentrant
    gradient checkpointing and does not work with an offloader that replaces checkpointing (`hidden_states` is fine).
    With an adapter it cannot save the outputs of matrix products, because the adapter's contribution is added in place.
    Since 0.20 this applies only to the fused LoRA kernels; before, it applied to PEFT too. Axolotl stops in each of
    these cases. The combination with torch_compile is untested.
    """
    if not run.config.get(_SELECTIVE):
        return
    if not run.savings.gradient_checkpointing:
        yield Hit(
            "Axolotl refuses selective_checkpointing while gradient_checkpointing is off",
            _SELECTIVE,
            change=changes.turn_checkpointing_on(run),
        )
    if run.config.get(_REENTRANT):
        yield Hit(
            "Axolotl refuses selective_checkpointing with use_reentrant: true",
            _REENTRANT,
            change=changes.nonreentrant_checkpointing(run),
        )
    yield from _offloading(run)
    yield from _saved_matmuls(run)
    if run.kernels.torch_compile:
        yield Hit(
            "selective_checkpointing with torch_compile is untested: it hooks into uncompiled checkpointing",
            "torch_compile",
            severity=Severity.WARNING,
        )


def _offloading(run: RunSpec) -> Iterator[Hit]:
    if run.savings.activation_offloading not in ("stream", "legacy"):
        return
    edit = insert_key("activation_offloading", "hidden_states", beside=_SELECTIVE)
    written = str(run.config.get("activation_offloading", "true")).lower()
    yield Hit(
        f"Axolotl refuses {_SELECTIVE} with activation_offloading: {written}, which replaces checkpointing",
        "activation_offloading",
        unsafe("Offload only the layers' inputs: hidden_states", edit)
        if "activation_offloading" in run.config
        else None,
    )


def _saved_matmuls(run: RunSpec) -> Iterator[Hit]:
    saved = run.config.get(f"{_SELECTIVE}.save")
    by_kernels = schema_of(run).since("0.20.0")
    if not isinstance(saved, list) or not (run.adapter.lora_kernels if by_kernels else run.adapter.kind):
        return
    bad = [str(name) for name in saved if name != "attention" and any(str(name) in op for op in _MATMULS)]
    if not bad:
        return
    who = "the fused LoRA kernels change" if by_kernels else f"adapter {run.adapter.kind} changes"
    kept = [name for name in saved if str(name) not in bad] or ["attention"]
    yield Hit(
        f"Axolotl refuses {_SELECTIVE}.save {', '.join(bad)}: {who} matrix products in place",
        f"{_SELECTIVE}.save",
        unsafe(f"Save only {', '.join(map(str, kept))}", set_key(f"{_SELECTIVE}.save", kept)),
    )


checkpointing_unsupported_model = row(
    id="checkpointing-unsupported-model",
    text="""Gradient checkpointing is on for an MPT model, which does not support it.

    Axolotl stops if `mpt` is in the name of the base model, because MPT's model code does not support gradient
    checkpointing. Without checkpointing, activations need more memory: lower the micro-batch or the length.
    """,
    bad="base_model: mosaicml/mpt-7b\ngradient_checkpointing: true\n",
    good="base_model: mosaicml/mpt-7b\ngradient_checkpointing: false\n",
    when=lambda run: run.savings.gradient_checkpointing and "mpt" in (run.base_model or "").lower(),
    key="gradient_checkpointing",
    message=lambda run: f"Axolotl refuses gradient_checkpointing for {run.base_model}: MPT does not support it",
    fix=unsafe("Turn it off (activations will need more memory)", set_key("gradient_checkpointing", False)),
)

hidden_states_offloading_misused = row(
    id="hidden-states-offloading-misused",
    text="""`activation_offloading: hidden_states` with a partly frozen model and reentrant checkpointing.

    This mode checkpoints every layer and offloads the layers' inputs. With reentrant checkpointing it cannot train a
    partly frozen model (`unfrozen_parameters`), so Axolotl stops. Use non-reentrant checkpointing. (With an adapter,
    Axolotl warns that `true` may be faster because it skips recomputation. It does not skip it: see
    `offloading-of-recomputed`.)
    """,
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nunfrozen_parameters:\n  - lm_head\ngradient_checkpointing: true\n"
        "gradient_checkpointing_kwargs:\n  use_reentrant: true\nactivation_offloading: hidden_states\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nunfrozen_parameters:\n  - lm_head\ngradient_checkpointing: true\n"
        "gradient_checkpointing_kwargs:\n  use_reentrant: false\nactivation_offloading: hidden_states\n"
    ),
    when=lambda run: (
        run.savings.activation_offloading == "hidden_states"
        and run.config.get(_REENTRANT)
        and run.config.get("unfrozen_parameters")
    ),
    key=_REENTRANT,
    message="Axolotl refuses use_reentrant: true with unfrozen_parameters and activation_offloading: hidden_states",
    change=changes.nonreentrant_checkpointing,
)

nonreentrant_qlora_zero3 = row(
    id="nonreentrant-qlora-zero3",
    explains={"recompute-freed-weights", "recompute-dtype"},
    severity=Severity.WARNING,
    text="""Non-reentrant checkpointing with QLoRA under ZeRO 3.

    ZeRO 3 gathers a layer's weights for forward and frees them afterwards. During recomputation the gathered tensors
    can have different metadata. Non-reentrant checkpointing compares them, and the run ends in a CheckpointError about
    recomputed values. Reentrant checkpointing does not compare.
    """,
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_4bit: true\ngradient_checkpointing: true\n"
        "gradient_checkpointing_kwargs:\n  use_reentrant: false\ndeepspeed:\n  zero_optimization:\n    stage: 3\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_4bit: true\ngradient_checkpointing: true\n"
        "gradient_checkpointing_kwargs:\n  use_reentrant: true\ndeepspeed:\n  zero_optimization:\n    stage: 3\n"
    ),
    options="--gpus 2",
    beyond_trainer="Axolotl warns only if the path in `deepspeed:` contains zero3; inline blocks and other names pass.",
    when=lambda run: (
        run.adapter.kind == "qlora"
        and run.sharding.kind == "zero3"
        and run.savings.recompute
        and not run.savings.checkpointing_reentrant
    ),
    key=_REENTRANT,
    message=lambda run: (
        f"{'use_reentrant: false' if _REENTRANT in run.config else 'non-reentrant checkpointing (the default here)'} "
        "with QLoRA under ZeRO 3 can end in a CheckpointError, because recomputed tensors can differ"
    ),
    change=changes.reentrant_checkpointing,
)

offloading_of_recomputed = row(
    id="offloading-of-recomputed",
    explains={"offload-tracker"},
    severity=Severity.INFO,
    text="""Activation offloading with an adapter and reentrant checkpointing offloads recomputed tensors.

    Axolotl means offloading (`activation_offloading: true`, `disk` or `legacy`) to replace checkpointing, but with LoRA
    or QLoRA the model loader has already turned checkpointing on. The offloader then also offloads the tensors that a
    block saves while it is recomputed, and keeps one block's worth on the card for longer than needed. This costs more
    memory and traffic than either alone. Use non-reentrant checkpointing (the default since 0.21) or
    `activation_offloading: hidden_states`: both offload only the layers' inputs.
    """,
    bad=(
        "adapter: lora\ngradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: true\n"
        "activation_offloading: true\n"
    ),
    good="adapter: lora\ngradient_checkpointing: true\nactivation_offloading: hidden_states\n",
    beyond_trainer="Axolotl means offloading to replace recomputation here, but both happen.",
    when=lambda run: (
        run.adapter.kind
        and run.savings.recompute
        and run.savings.checkpointing_reentrant
        and run.savings.activation_offloading in ("stream", "legacy")
    ),
    key="activation_offloading",
    message=lambda run: (
        f"adapter {run.adapter.kind} with activation_offloading "
        f"{str(run.config.get('activation_offloading', 'true')).lower()} and reentrant checkpointing: blocks are "
        "recomputed, and the recomputed tensors go to host memory and back"
    ),
)

offloading_without_checkpointing = row(
    id="offloading-without-checkpointing",
    text="""`activation_offloading` is on and `gradient_checkpointing` is off.

    Axolotl requires gradient checkpointing for activation offloading and stops. With an adapter the offloader replaces
    recomputation. In a full fine-tune it offloads what checkpointing keeps. Turn checkpointing on: the training result
    is the same.
    """,
    bad="adapter: lora\nactivation_offloading: true\n",
    good="adapter: lora\nactivation_offloading: true\ngradient_checkpointing: true\n",
    when=lambda run: run.config.get("activation_offloading") and not run.savings.gradient_checkpointing,
    key="activation_offloading",
    message=lambda run: (
        f"Axolotl refuses activation_offloading: {str(run.config.get('activation_offloading')).lower()} while "
        "gradient_checkpointing is off"
    ),
    change=changes.turn_checkpointing_on,
)

reentrant_partly_frozen = row(
    id="reentrant-partly-frozen",
    text="""Reentrant checkpointing of a partly frozen model.

    Reentrant checkpointing computes gradients only if an input of the layer needs them. In a partly frozen model, some
    trained parameters would get no gradient. Axolotl therefore refuses `unfrozen_parameters` with
    `use_reentrant: true`. Non-reentrant checkpointing has no such limit and gives the same result.
    """,
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\ngradient_checkpointing: true\n"
        "gradient_checkpointing_kwargs:\n  use_reentrant: true\nunfrozen_parameters:\n  - lm_head\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\ngradient_checkpointing: true\n"
        "gradient_checkpointing_kwargs:\n  use_reentrant: false\nunfrozen_parameters:\n  - lm_head\n"
    ),
    when=lambda run: run.config.get("unfrozen_parameters") and run.config.get(_REENTRANT) is True,
    key=_REENTRANT,
    message="Axolotl refuses use_reentrant: true with unfrozen_parameters: trained layers may get no gradient",
    change=changes.nonreentrant_checkpointing,
)

reentrant_rl_qlora = row(
    id="reentrant-rl-qlora",
    text="""Reentrant checkpointing in RL with QLoRA on several GPUs.

    TRL's trainers do not support reentrant checkpointing with QLoRA on several GPUs, so Axolotl stops. Non-reentrant
    checkpointing is the default in RL and gives the same result. On one GPU Axolotl accepts the combination.
    """,
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nrl: dpo\nadapter: qlora\nload_in_4bit: true\n"
        "gradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: true\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nrl: dpo\nadapter: qlora\nload_in_4bit: true\n"
        "gradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: false\n"
    ),
    options="--gpus 2",
    when=lambda run: (
        run.objective.rl is not None
        and run.loading.quantization == "4bit"
        and run.batch.gpus > 1
        and run.savings.gradient_checkpointing
        and run.config.get(_REENTRANT)
    ),
    key=_REENTRANT,
    message=lambda run: (
        f"Axolotl refuses use_reentrant: true in rl {run.objective.rl} with QLoRA on {run.batch.gpus} GPUs: TRL does "
        "not support it"
    ),
    change=changes.nonreentrant_checkpointing,
)


@rule(
    id="disk-offload-not-disk",
    severity=Severity.WARNING,
    bad="base_model: meta-llama/Llama-3.2-1B\ngradient_checkpointing: true\nactivation_offloading: disk\n",
    good="base_model: meta-llama/Llama-3.2-1B\ngradient_checkpointing: true\nactivation_offloading: true\n",
    beyond_trainer="Axolotl's schema refuses the value that turns on disk offloading; `disk` offloads to host memory.",
)
def disk_offload_not_disk(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`activation_offloading: disk` offloads to host memory, not to disk.

    Axolotl has a disk offloader, but turns it on only for the value `offload_disk` of `activation_offloading`, which
    its schema refuses. `disk`, and the old `gradient_checkpointing: offload_disk` that is translated to it, offload to
    pinned host memory like `true`. A machine whose RAM was chosen with disk offloading in mind can run out of RAM.
    """
    title = "Set activation_offloading: true, which is what happens"
    if run.config.get("gradient_checkpointing") == "offload_disk":
        key = "gradient_checkpointing"
        message = f"{key}: offload_disk does not offload to disk: activations go to host memory"
        yield Hit(message, key, safe(title, set_key(key, True), insert_key("activation_offloading", True, beside=key)))
    elif run.config.get("activation_offloading") == "disk":
        key = "activation_offloading"
        message = f"{key}: disk does not offload to disk: activations go to host memory, as with true"
        yield Hit(message, key, safe(title, set_key(key, True)))
