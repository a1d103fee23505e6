"""How long the arguments of checkpointed blocks live."""

from dataclasses import replace

import pytest

from truth import BUNDLED, H200, cases
from vramwise.ghost.loops.batches import BatchShape
from vramwise.ghost.loops.sft import ghost_run
from vramwise.timeline import Action

FULL = next(case for case in cases(BUNDLED) if case.name == "full_tinyllama_s1024_b2")
MODEL = replace(FULL.model, num_hidden_layers=2)


@pytest.mark.parametrize("reentrant", [True, False])
def test_without_reentry_the_mask_goes_before_the_embeddings_gradient_comes(reentrant):
    run = FULL.run.changed(
        recompute=True,
        gradient_checkpointing=True,
        checkpointing_reentrant=reentrant,
        attn_implementation="sdpa",
    )
    shape = BatchShape(2, 512, True)
    timeline = ghost_run(run, MODEL, gpu=H200, widths=[shape], steps=1)[0]
    events, tags = timeline.events, timeline.tags
    made = [(i, event, tags[event.tag]) for i, event in enumerate(events) if event.action == Action.ALLOC]
    masks = [event.tensor for _, event, tag in made if tag.label == "attention mask" and event.size_bytes == 2 * 512**2]
    gone = next(i for i, event in enumerate(events) if event.action == Action.FREE and event.tensor == masks[-1])
    gradient = next(i for i, _, tag in made if tag == ("gradients", "model.embed_tokens.weight"))
    assert (gradient < gone) == reentrant
