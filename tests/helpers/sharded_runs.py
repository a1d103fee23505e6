"""Ghost runs of sharded models, and sums over their timelines."""

from dataclasses import replace

from truth import BUNDLED, H200, cases
from vramwise.ghost.loops.sft import ghost_run
from vramwise.timeline import Action, Timeline

LORA = {case.name: case for case in cases(BUNDLED)}["lora_llama8b_s1024_b1_nogc"]
MODEL = replace(
    LORA.model,
    num_hidden_layers=6,
    hidden_size=512,
    intermediate_size=1376,
    num_attention_heads=8,
    num_key_value_heads=4,
    head_dim=64,
    vocab_size=32000,
    tie_word_embeddings=False,
)


def ghost(engine: str = "transformers", *, tied: bool = False, **changes: object) -> Timeline:
    settings: dict[str, object] = {
        "loads_through": "host",
        "fsdp_one_root": engine == "axolotl",
        "fsdp_adapters_apart": engine == "axolotl",
        "fsdp_widens": "nothing" if engine == "axolotl" and changes.get("sharding") != "fsdp1" else "trained",
        "adapter": None,
        "lora_r": 16,
        "sharding": "fsdp2",
        "gpus": 4,
        "data_parallel": 4,
        "sequence_len": 32,
        "optimizer": "adamw_torch",
        "max_grad_norm": 0.0,
    }
    model = replace(MODEL, tie_word_embeddings=tied)
    return ghost_run(LORA.run.changed(**(settings | changes)), model, gpu=H200, steps=2)[0]


def peaks(timeline: Timeline, kind) -> dict[str, int]:
    """The most bytes of a kind of memory that live at once, by phase of the second step. `kind`: of tag and stream."""
    live: dict[int, int] = {}
    found: dict[str, int] = {}
    phase, step, now = "load", 0, 0
    for event in timeline.events:
        if event.action == Action.PHASE:
            phase, step = timeline.phases[event.tag]
        elif event.action == Action.ALLOC and kind(timeline.tags[event.tag], event.stream):
            live[event.tensor] = event.size_bytes
            now += event.size_bytes
        elif event.action == Action.FREE:
            now -= live.pop(event.tensor, 0)
        if step != 1:
            found[phase] = max(found.get(phase, 0), now)
    return found


def anything_but_states(tag, _stream):
    return tag.category not in ("optimizer", "workspace")


def labelled(text: str, streams: tuple[int, ...] = (0, 1, 2)):
    return lambda tag, stream: text in tag.label and stream in streams
