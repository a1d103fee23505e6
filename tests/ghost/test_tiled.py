"""The head in tiles, plain 4-bit scales and bf16 adapters: sizes worked out by hand."""

from opened import make_target, subject_of_text
from vramwise.ghost.dtypes import BF16, FP32
from vramwise.ghost.engine import backward
from vramwise.ghost.hardware import Hardware
from vramwise.ghost.loading.parameter import quantise_4bit
from vramwise.ghost.loops.sft import ghost_run
from vramwise.ghost.ops.logprobs import TOKENS, WORDS, summed, tiled_log_probs
from vramwise.ghost.ops.quantised import linear_4bit
from vramwise.ghost.tape import Leaf, Parameter, Tape
from vramwise.timeline import Action

MIB = 1024**2
TEXT = (
    "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: d\nmax_length: 512\nper_device_train_batch_size: 1\n"
    "use_peft: true\nlora_target_modules: [q_proj, v_proj]\nlora_dropout: 0.0\n"
)


def tape():
    t = Tape(Hardware())
    t.workspace()
    t.in_backward = True
    t.workspace()
    t.in_backward = False
    return t


def peak(t, since=0):
    live = top = 0
    for event in t.events[since:]:
        live += event.size_bytes * (1 if event.action == Action.ALLOC else -1)
        top = max(top, live)
    return top


def wanting(t, *shape, dtype):
    made = t.new(shape, dtype)
    leaf = Leaf(made.storage, made.shape, made.numel, made.dtype)
    leaf.require_grad()
    return leaf


def test_forward_holds_one_tile_whatever_the_vocabulary():
    t = tape()
    hidden = wanting(t, TOKENS, 64, dtype=BF16)
    weight = Parameter(t, "w", (4 * WORDS, 64), BF16, trainable=False)
    before = len(t.events)
    tiled_log_probs(t, hidden, weight)
    tile = TOKENS * WORDS * 2
    assert tile < peak(t, before) < tile + MIB


def test_a_wide_weight_is_cast_slice_by_slice():
    t = tape()
    t.autocast = BF16
    hidden = wanting(t, TOKENS, 1024, dtype=FP32)
    weight = Parameter(t, "w", (2 * WORDS, 1024), FP32, trainable=False)
    before = len(t.events)
    out = summed(t, tiled_log_probs(t, hidden, weight))
    tile, part, rows = TOKENS * WORDS * 2, WORDS * 1024 * 2, TOKENS * 1024 * 2
    assert abs(peak(t, before) - (tile + part + rows)) < MIB
    before = len(t.events)
    backward(t, out.node, t.new((), FP32))
    # two slices at once: the name of one lives until the next is there; and the gradient of the hidden states in fp32
    assert abs(peak(t, before) - (tile + 2 * part + rows + TOKENS * 1024 * 4)) < MIB


def test_a_trained_head_gets_its_gradient_in_fp32_first():
    t = tape()
    hidden = wanting(t, 256, 64, dtype=BF16)
    weight = Parameter(t, "w", (WORDS, 64), BF16, trainable=True)
    out = summed(t, tiled_log_probs(t, hidden, weight))
    before = len(t.events)
    backward(t, out.node, t.new((), FP32))
    wide = WORDS * 64 * 4
    assert peak(t, before) >= wide + wide // 2


def test_plain_scales_take_four_bytes_for_64():
    numel = 4096 * 4096
    t = tape()
    plain = sum(block.nbytes for block in quantise_4bit(t, (4096, 4096), FP32, nested=False))
    nested = sum(block.nbytes for block in quantise_4bit(t, (4096, 4096), FP32))
    assert plain == numel // 2 + 64 + numel // 64 * 4
    assert nested < plain - numel // 64 * 2


def test_a_4bit_weight_computed_in_fp32_is_unpacked_wide_then_cast():
    t = tape()
    t.autocast = BF16
    x = wanting(t, 8, 1024, dtype=FP32)
    before = len(t.events)
    linear_4bit(t, x, (1024, 1024), None, FP32, nested=False)
    wide = 1024 * 1024 * 4
    assert wide + wide // 2 < peak(t, before) < wide + wide // 2 + 128 * 1024


def run_of(text):
    subject = subject_of_text(TEXT + text, make_target(trainer="trl", gpu="h100"), trainer="trl")
    return subject.run, subject.model


def allocated(run, model):
    timeline, _ = ghost_run(run, model, steps=2)
    live = top = 0
    for event in timeline.events:
        if event.action in (Action.ALLOC, Action.FREE):
            live += event.size_bytes * (1 if event.action == Action.ALLOC else -1)
            top = max(top, live)
    return top


def test_no_logits_are_ever_held():
    run, model = run_of("dtype: bfloat16\n")
    tiled, stock = allocated(run, model), allocated(run.changed(loss_kernel="stock"), model)
    logits = 512 * model.vocab_size * 4
    tile = 511 * WORDS * 2
    assert stock - tiled > logits - tile


def test_fp32_weights_double_the_base():
    wide, model = run_of("")
    narrow, _ = run_of("dtype: bfloat16\n")
    from vramwise.models.parameters import parameters

    count = sum(one.numel for one in parameters(model))
    assert allocated(wide, model) - allocated(narrow, model) > 1.9 * count


def test_adapters_on_a_quantised_base_are_halved():
    run, model = run_of("load_in_4bit: true\ndtype: bfloat16\n")
    assert run.adapter.half_adapters
    assert allocated(run.changed(half_adapters=False), model) > allocated(run, model)


def test_preference_training_takes_the_same_tiles():
    run, model = run_of("dtype: bfloat16\nld_alpha: 1.0\n")
    assert (run.objective.kind, run.objective.log_probs) == ("dpo", "tiled")
    assert allocated(run, model) < allocated(run.changed(log_probs="fused"), model)


def test_precomputing_takes_the_batch_of_an_evaluation():
    """It is 8 where nothing is said, twice that in rows: more than a small training step needs."""
    text = "dtype: bfloat16\nld_alpha: 1.0\nprecompute_ref_log_probs: true\n"
    run, model = run_of(text + "eval_strategy: steps\n")
    plain, _ = run_of(text)
    assert before_training(run, model) > 2 * before_training(plain, model)


def before_training(run, model):
    """The most that passes beside the weights while the reference is asked, before the first step."""
    timeline, _ = ghost_run(run, model, steps=1)
    live = held = top = 0
    phase = ""
    for event in timeline.events:
        if event.action == Action.PHASE:
            phase = timeline.phases[event.tag]
            held = live if phase.name == "reference" and phase.step == 0 else held
        elif event.action in (Action.ALLOC, Action.FREE):
            live += event.size_bytes * (1 if event.action == Action.ALLOC else -1)
            if phase and phase.name == "reference" and phase.step == 0:
                top = max(top, live - held)
    return top
