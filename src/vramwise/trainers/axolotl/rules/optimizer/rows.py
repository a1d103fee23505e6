"""Axolotl's own rules of one condition and one sentence: optimizer."""

from __future__ import annotations

from functools import partial

from vramwise.rules.base import insert_key, set_key, unsafe
from vramwise.rules.rows import row
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.variants import changes

_row = partial(row, topic="optimizer")

fsdp_offload_8bit_optimizer = _row(
    id="fsdp-offload-8bit-optimizer",
    text="""FSDP1 offloads parameters to host memory while the optimizer is an 8-bit one.

    With `offload_params` the optimizer steps on the CPU, on flat shards; the 8-bit optimizers are made for the GPU.
    Axolotl stops for every optimizer with `8bit` in its name. The state lies in host memory anyway: a plain AdamW
    costs no GPU memory there. FSDP1 ends with Axolotl 0.19; FSDP2 offloads with torchao's 8-bit optimizers too.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch_8bit\nfsdp_config:\n  offload_params: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch\nfsdp_config:\n  offload_params: true\n",
    options="--gpus 2 --with axolotl==0.19.0",
    when=lambda run: run.sharding.kind == "fsdp1" and run.sharding.offload_params and "8bit" in run.optimizer.name,
    key="optimizer",
    message=lambda run: (
        f"optimizer {run.optimizer.name} with FSDP1 offload: it would step on the CPU, which Axolotl refuses"
    ),
    fix=unsafe("Step on the CPU with AdamW: adamw_torch", set_key("optimizer", "adamw_torch")),
)

galore_without_targets = _row(
    id="galore-without-targets",
    text="""GaLore or APOLLO without `optim_target_modules`.

    Both project the gradients of chosen linear layers to a low rank; that is where the optimizer's memory is saved.
    transformers has no default for the choice and stops while it builds the optimizer. `[attn, mlp]` picks the linear
    layers of attention and MLP by parts of their names, as in GaLore's own examples; `all_linear` picks every one.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: galore_adamw\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: galore_adamw\noptim_target_modules:\n  - attn\n  - mlp\n",
    beyond_trainer="Axolotl accepts it; transformers refuses when it builds the optimizer, after the model has loaded.",
    when=lambda run: (
        run.optimizer.name in schema_of(run).optimizer_group("needs_target_modules")
        and run.config.get("optim_target_modules") is None
    ),
    key="optimizer",
    message=lambda run: (
        f"optimizer {run.optimizer.name} without optim_target_modules: transformers stops after the model loaded"
    ),
    fix=unsafe(
        "Project attention and MLP: optim_target_modules [attn, mlp]",
        insert_key("optim_target_modules", ["attn", "mlp"], beside="optimizer"),
    ),
)

optimizer_unhandled = _row(
    id="optimizer-unhandled",
    explains={"optimizer-unhandled"},
    text="""An optimizer that Axolotl's schema accepts and its trainer then refuses.

    `ao_adamw_4bit` and `ao_adamw_8bit` are still in the list of accepted names, but the code that builds the trainer
    no longer handles them: it raises "Unhandled optimizer" after the model has loaded. transformers has the same
    torchao optimizers under the names `adamw_torch_4bit` and `adamw_torch_8bit`.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: ao_adamw_8bit\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch_8bit\n",
    beyond_trainer="Axolotl's schema lists the name, but its trainer builder has no case for it and raises.",
    when=lambda run: run.optimizer.name in schema_of(run).optimizer_group("raises_later"),
    key="optimizer",
    message=lambda run: (
        f"optimizer {run.optimizer.name} passes the schema, but Axolotl does not handle it: the run stops after loading"
    ),
    change=changes.handled_optimizer,
)
