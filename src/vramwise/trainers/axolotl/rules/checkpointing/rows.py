"""Axolotl's own rules of one condition and one sentence: checkpointing."""

from __future__ import annotations

from functools import partial

from vramwise.rules.base import insert_key, safe, set_key, unsafe
from vramwise.rules.rows import Case, row
from vramwise.types import Severity
from vramwise.variants import changes

_REENTRANT = "gradient_checkpointing_kwargs.use_reentrant"

_row = partial(row, topic="checkpointing")

checkpointing_unsupported_model = _row(
    id="checkpointing-unsupported-model",
    text="""Gradient checkpointing for an MPT model.

    MPT's model code does not support it and Axolotl stops, going by `mpt` in the name of the base model. Without
    checkpointing activations take more memory: lower the micro-batch or the length.
    """,
    bad="base_model: mosaicml/mpt-7b\ngradient_checkpointing: true\n",
    good="base_model: mosaicml/mpt-7b\ngradient_checkpointing: false\n",
    when=lambda run: run.savings.gradient_checkpointing and "mpt" in (run.base_model or "").lower(),
    key="gradient_checkpointing",
    message=lambda run: f"gradient_checkpointing with {run.base_model}: MPT models do not support it, Axolotl stops",
    fix=unsafe("Turn it off (activations then need more memory)", set_key("gradient_checkpointing", False)),
)

hidden_states_offloading_misused = _row(
    id="hidden-states-offloading-misused",
    text="""`activation_offloading: hidden_states` where it fails.

    It checkpoints every layer and offloads the layers' inputs. In its reentrant form it cannot train a partly frozen
    model (`unfrozen_parameters`): Axolotl stops. (With an adapter Axolotl warns that `true` may be faster, because it
    skips recomputation: it does not, see `offloading-of-recomputed`.)
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
    message="use_reentrant: true with unfrozen_parameters and offloading of hidden_states: Axolotl stops",
    change=changes.nonreentrant_checkpointing,
)

nonreentrant_qlora_zero3 = _row(
    id="nonreentrant-qlora-zero3",
    explains={"recompute-freed-weights", "recompute-dtype"},
    severity=Severity.WARNING,
    text="""Non-reentrant checkpointing with QLoRA under ZeRO 3.

    ZeRO 3 gathers a layer's weights for forward and lets them go; in the recomputation the gathered tensors can have
    other metadata than the first time, and non-reentrant checkpointing compares them: the run ends in a
    CheckpointError about recomputed values. Reentrant checkpointing does not compare.
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
        "with QLoRA under ZeRO 3: recomputed tensors can differ, which ends in a CheckpointError"
    ),
    change=changes.reentrant_checkpointing,
)

offloading_of_recomputed = _row(
    id="offloading-of-recomputed",
    explains={"offload-tracker"},
    severity=Severity.INFO,
    text="""Reentrant checkpointing with an adapter: what is recomputed is sent to host memory and back.

    Axolotl leaves checkpointing to offloading (`activation_offloading: true`, `disk` or `legacy`), but with LoRA or
    QLoRA the model loader has turned it on already. The offloader then also takes what a block saves while it is
    recomputed, and keeps a block's worth of it on the card for longer than needed: more memory and traffic than either
    alone. Non-reentrant checkpointing (the default since 0.21) or `activation_offloading: hidden_states` send the
    layers' inputs only.
    """,
    bad=(
        "adapter: lora\ngradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: true\n"
        "activation_offloading: true\n"
    ),
    good="adapter: lora\ngradient_checkpointing: true\nactivation_offloading: hidden_states\n",
    beyond_trainer="Axolotl means offloading to replace recomputation here; both happen, one on top of the other.",
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
        "recomputed, and what that saves goes to host memory and back"
    ),
)

offloading_without_checkpointing = _row(
    id="offloading-without-checkpointing",
    text="""`activation_offloading` is on and `gradient_checkpointing` is off.

    Axolotl ties the two together and stops. With an adapter the offloader then replaces recomputation; in a full
    fine-tune it moves what checkpointing keeps. Turning checkpointing on gives the same training result.
    """,
    bad="adapter: lora\nactivation_offloading: true\n",
    good="adapter: lora\nactivation_offloading: true\ngradient_checkpointing: true\n",
    when=lambda run: run.config.get("activation_offloading") and not run.savings.gradient_checkpointing,
    key="activation_offloading",
    message=lambda run: (
        f"activation_offloading: {str(run.config.get('activation_offloading')).lower()} while gradient_checkpointing "
        "is off: Axolotl stops, it needs both"
    ),
    change=changes.turn_checkpointing_on,
)

reentrant_partly_frozen = _row(
    id="reentrant-partly-frozen",
    text="""Reentrant checkpointing of a partly frozen model.

    Reentrant checkpointing gives gradients only where an input of the layer needs them; in a model of which some
    parameters are frozen, trained ones would get none. Axolotl stops when `unfrozen_parameters` meets `use_reentrant:
    true`. The non-reentrant form has no such limit and gives the same result.
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
    message="use_reentrant: true with unfrozen_parameters: trained layers may get no gradient, Axolotl stops",
    change=changes.nonreentrant_checkpointing,
)

reentrant_rl_qlora = _row(
    id="reentrant-rl-qlora",
    text="""Reentrant checkpointing in RL with QLoRA on several GPUs.

    TRL's trainers do not work with reentrant checkpointing there, and Axolotl stops. The non-reentrant form is the
    default in RL and gives the same result. On one GPU the pair is accepted.
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
        f"use_reentrant: true in rl {run.objective.rl} with QLoRA on {run.batch.gpus} GPUs is not "
        "supported: Axolotl stops"
    ),
    change=changes.nonreentrant_checkpointing,
)

disk_offload_not_disk = _row(
    id="disk-offload-not-disk",
    severity=Severity.WARNING,
    text="""`activation_offloading: disk` offloads to host memory, not to disk.

    Axolotl has a disk offloader, but turns it on for the value `offload_disk` of `activation_offloading`, which its
    schema does not accept. `disk`, and the old `gradient_checkpointing: offload_disk` that is translated to it, run
    the same streaming offloader to pinned host memory as `true`. A machine that was sized for disk runs out of RAM
    instead.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\ngradient_checkpointing: true\nactivation_offloading: disk\n",
    good="base_model: meta-llama/Llama-3.2-1B\ngradient_checkpointing: true\nactivation_offloading: true\n",
    beyond_trainer="Axolotl's disk offloader hangs on a value that its schema refuses; `disk` runs the CPU streamer.",
    first_case=True,
    cases=(
        Case(
            when=lambda run: run.config.get("gradient_checkpointing") == "offload_disk",
            key="gradient_checkpointing",
            message="gradient_checkpointing: offload_disk writes nothing to disk: activations go to host memory",
            fix=safe(
                "Say what happens: activation_offloading true",
                set_key("gradient_checkpointing", True),
                insert_key("activation_offloading", True, beside="gradient_checkpointing"),
            ),
        ),
        Case(
            when=lambda run: run.config.get("activation_offloading") == "disk",
            key="activation_offloading",
            message="activation_offloading: disk writes nothing to disk: activations go to host memory, as with true",
            fix=safe("Say what happens: activation_offloading true", set_key("activation_offloading", True)),
        ),
    ),
)
