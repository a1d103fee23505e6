"""Loading, mechanism by mechanism: what passes by, what stays, and in which order it comes."""

from dataclasses import replace

import pytest

from truth import BUNDLED, H200, cases
from vramwise.facts.context import CONTEXT_BYTES
from vramwise.ghost.dtypes import BF16, FP32
from vramwise.ghost.hardware import hardware_of
from vramwise.ghost.loading import load, load_reference
from vramwise.ghost.loading.reading import checkpoint_order, merge_experts, read_experts
from vramwise.ghost.sharding import sharding_of
from vramwise.ghost.tape import Tape
from vramwise.models.parameters import parameters
from vramwise.timeline import Action

CASES = {case.name: case for case in cases(BUNDLED)}
LORA = CASES["lora_llama8b_s1024_b1_nogc"]
UNTIED = replace(LORA.model, num_hidden_layers=2)
TIED = replace(CASES["full_qwen05_s1024_b2_ga2"].model, num_hidden_layers=2)
MOE = replace(CASES["lora_olmoe_s1024_b2_gc_attn"].model, num_hidden_layers=2)
READ = LORA.run.changed(loads_through="device", upcasts_at_load=(), resets_load_peaks=False)
QLORA = READ.changed(adapter="qlora", quantization="4bit", quantised_base_prepared="no")
MIB = 1024**2
EMBEDDINGS = ("norm", "router", "embedding", "lm_head")


def loading(run=READ, model=UNTIED, loader=load):
    """The tape after loading, and the weights, which keep their memory alive."""
    t = Tape(hardware_of(H200, (2, 11)))
    t.phase("load", 0)
    return t, loader(t, model, run, sharding_of(run))


def requests(t):
    return [(event.size_bytes, t.tags[event.tag].label) for event in t.events if event.action == Action.ALLOC]


def levels(t):
    level, found = 0, []
    for event in t.events:
        level += {Action.ALLOC: event.size_bytes, Action.FREE: -event.size_bytes}.get(Action(event.action), 0)
        found.append(level)
    return found


def held(run):
    """What is there when loading has ended."""
    t, weights = loading(run)
    assert weights
    return levels(t)[-1]


def total(model, size=2):
    return sum(parameter.numel for parameter in parameters(model)) * size


def warm_up(t):
    return t.events[3].size_bytes + 2 * MIB


def embedding(model):
    return model.vocab_size * model.hidden_size


class TestReadingOntoTheCard:
    def test_a_block_of_the_models_size_is_asked_for_and_given_back(self):
        t, _weights = loading()
        first, second = t.events[3:5]
        assert (first.action, first.size_bytes) == (Action.ALLOC, total(UNTIED) - 2 * MIB)
        assert (second.action, second.tensor) == (Action.FREE, first.tensor)

    def test_a_number_comes_before_it_and_leaves_the_segment_that_is_taken_off(self):
        t, _weights = loading()
        assert [(event.action, event.size_bytes) for event in t.events[1:3]] == [(Action.ALLOC, 8), (Action.FREE, 8)]
        t, _weights = loading(READ.changed(sharding="ddp", gpus=2, data_parallel=2))
        assert t.events[1].size_bytes == total(UNTIED)

    def test_tied_weights_count_once_in_it(self):
        t, _weights = loading(model=TIED)
        assert warm_up(t) == total(TIED)

    def test_quantised_weights_count_by_their_bits(self):
        rest = embedding(UNTIED) * 2 * 2 + sum(p.numel for p in parameters(UNTIED) if p.kind == "norm") * 2
        linear = sum(p.numel for p in parameters(UNTIED) if p.kind == "linear")
        t, _weights = loading(QLORA)
        assert warm_up(t) == rest + linear // 2
        t, _weights = loading(QLORA.changed(quantization="8bit"))
        assert warm_up(t) == rest + linear

    def test_it_leaves_a_part_of_the_card_alone(self):
        large = replace(UNTIED, num_hidden_layers=400)
        t, _weights = loading(model=large)
        free = H200.memory_bytes - CONTEXT_BYTES - int(1.2 * 1024**3)
        assert warm_up(t) - 2 * MIB == free // 2 * 2

    def test_transformers_4_halves_what_a_quantised_model_would_take_in_16_bits(self):
        t, _weights = loading(QLORA.changed(halves_warm_up=True))
        assert t.events[3].size_bytes == (total(UNTIED) - 2 * MIB) // 2 // 2 * 2

    def test_there_is_none_where_experts_are_quantised_on_the_way(self):
        run = QLORA.changed(expert_quantization="4bit")
        t, _weights = loading(run, MOE)
        assert all(label != "warm-up of the allocator" for _, label in requests(t))

    def test_tensors_come_in_the_order_of_their_names(self):
        names = [parameter.name for parameter in checkpoint_order(replace(UNTIED, num_hidden_layers=11))]
        assert names[:2] == ["lm_head.weight", "model.embed_tokens.weight"]
        assert names[2] == "model.layers.0.input_layernorm.weight"
        assert names.index("model.layers.2.mlp.up_proj.weight") < names.index("model.layers.10.mlp.up_proj.weight")
        assert names[-1] == "model.norm.weight"

    def test_a_tied_head_is_not_made(self):
        t, _weights = loading(model=TIED)
        assert [label for size, label in requests(t) if size == embedding(TIED) * 2] == ["model.embed_tokens.weight"]

    def test_an_8_bit_weight_is_there_in_both_types_while_it_is_quantised(self):
        t, weights = loading(QLORA.changed(quantization="8bit"))
        name = "model.layers.0.mlp.up_proj.weight"
        numel = weights.shapes[name][0] * weights.shapes[name][1]
        assert [size for size, label in requests(t) if label == name] == [
            numel * 2,
            numel * 2,
            weights.shapes[name][0] * 4,
            numel,
        ]


class TestExperts:
    GATE_UP, DOWN = (
        next(p for p in parameters(MOE) if p.name.endswith(name)) for name in ("gate_up_proj", "down_proj")
    )

    def test_the_rest_of_a_layer_arrives_while_its_first_matrices_are_stacked(self):
        """As recorded on an H200: the last expert's gate and up, then attention, lie behind the first stack."""
        t, _weights = loading(model=MOE)
        each = self.DOWN.numel // MOE.num_experts * 2
        found = requests(t)
        start = [size for size, _ in found].index(each)
        first = start + 3 * MOE.num_experts - 2
        assert [size for size, _ in found[start:first]] == [each] * (first - start)
        assert [size for size, _ in found[first : first + 3]] == [self.DOWN.numel * 2, each, each]
        stacks = [at for at, (size, _) in enumerate(found) if size == self.GATE_UP.numel]
        rest = [label for _, label in found[first + 3 : next(at for at in stacks if at > first)]]
        assert any("q_proj" in label for label in rest)
        assert all(".layers.0." in label for label in rest)

    def test_with_quantisation_one_weights_matrices_at_a_time(self):
        t, _weights = loading(QLORA, MOE)
        each = self.DOWN.numel // MOE.num_experts * 2
        sizes = [size for size, _ in requests(t)]
        start = sizes.index(each)
        assert sizes[start : start + MOE.num_experts + 1] == [each] * MOE.num_experts + [self.DOWN.numel * 2]

    def test_quantised_on_the_way_each_leaves_no_cache_behind(self):
        t, _weights = loading(QLORA.changed(expert_quantization="4bit"), MOE)
        emptied = [event.action for event in t.events].count(Action.EMPTY_CACHE)
        # two weights a layer, once when all are there, and before the first step
        assert emptied == 2 * MOE.num_hidden_layers + 2

    def test_gate_and_up_are_stacked_apart_and_joined(self):
        t = Tape(hardware_of(H200, (2, 11)))
        lists = read_experts(t, self.GATE_UP, BF16)[self.GATE_UP.name]
        before = len(t.events)
        kept = merge_experts(t, self.GATE_UP, lists, BF16)
        whole = self.GATE_UP.numel * 2
        made = [event.size_bytes for event in t.events[before:] if event.action == Action.ALLOC]
        assert made == [whole // 2, whole // 2, whole]
        assert levels(t)[-1] == kept.nbytes == whole
        # two stacks and the lists of one, or both stacks and the joined weight
        assert max(levels(t)) == 2 * whole


class TestCasts:
    def test_embeddings_go_to_fp32_and_back_one_after_the_other(self):
        t, weights = loading(READ.changed(upcasts_at_load=EMBEDDINGS))
        large = [size for size, _ in requests(t) if size >= embedding(UNTIED) * 2][1:]
        narrow, wide = embedding(UNTIED) * 2, embedding(UNTIED) * 4
        assert large == [narrow, narrow, wide, wide, narrow, narrow]
        assert weights.by_name["lm_head.weight"].dtype is BF16

    def test_where_they_stay_they_are_cast_once(self):
        t, weights = loading(READ.changed(adapter=None, upcasts_at_load=EMBEDDINGS, fp32_embeddings=True))
        assert sum(size == embedding(UNTIED) * 4 for size, _ in requests(t)) == 2
        assert weights.by_name["lm_head.weight"].dtype is FP32
        assert weights.by_name["model.norm.weight"].dtype is FP32

    def test_routers_stay_in_fp32(self):
        _t, weights = loading(READ.changed(upcasts_at_load=EMBEDDINGS), MOE)
        router = next(p.name for p in parameters(MOE) if p.kind == "router")
        assert weights.by_name[router].dtype is FP32

    @pytest.mark.parametrize(("prepared", "wide"), [("no", 0), ("but embeddings", 0), ("all", 2)])
    def test_pefts_preparation_casts_what_it_does_not_spare(self, prepared, wide):
        t, weights = loading(QLORA.changed(quantised_base_prepared=prepared))
        assert sum(size == embedding(UNTIED) * 4 for size, _ in requests(t)) == wide
        assert weights.by_name["model.norm.weight"].dtype is BF16

    def test_experts_that_are_not_quantised_stay_in_fp32_after_it(self):
        experts = next(p.name for p in parameters(MOE) if p.kind == "experts")
        _t, weights = loading(QLORA.changed(quantised_base_prepared="all"), MOE)
        assert weights.by_name[experts].dtype is FP32
        _t, weights = loading(QLORA, MOE)
        assert weights.by_name[experts].dtype is BF16


class TestPeaks:
    def test_they_begin_anew_when_the_base_is_ready_and_when_adapters_are(self):
        run = READ.changed(resets_load_peaks=True)
        t, _weights = loading(run)
        kinds = [event.action for event in t.events if event.action in (Action.RESET_PEAKS, Action.EMPTY_CACHE)]
        assert kinds == [Action.RESET_PEAKS, Action.RESET_PEAKS, Action.EMPTY_CACHE]
        t, _weights = loading(run.changed(adapter=None))
        assert [event.action for event in t.events].count(Action.RESET_PEAKS) == 1

    def test_adapters_that_the_trainer_adds_come_after_the_cache_is_emptied(self):
        t, _weights = loading(READ.changed(rl="dpo"))
        emptied = next(index for index, event in enumerate(t.events) if event.action == Action.EMPTY_CACHE)
        labels = {t.tags[event.tag].label for event in t.events[emptied:] if event.action == Action.ALLOC}
        assert labels
        assert all("lora_" in label for label in labels)


class TestByWayOfTheHost:
    RUN = READ.changed(loads_through="host", upcasts_at_load=EMBEDDINGS)

    def test_nothing_passes_by(self):
        t, weights = loading(self.RUN)
        assert all(event.action != Action.FREE for event in t.events)
        assert max(levels(t)) == levels(t)[-1]
        assert levels(t)[-1] == held(READ)
        assert weights.adapters.keys() == loading(READ)[1].adapters.keys()

    def test_an_adapter_comes_behind_its_module(self):
        t, _weights = loading(self.RUN)
        labels = [label for _, label in requests(t)]
        at = labels.index("model.layers.0.self_attn.q_proj.weight")
        assert labels[at + 1 : at + 3] == [f"model.layers.0.self_attn.q_proj.lora_{letter}" for letter in "AB"]

    def test_embeddings_arrive_in_the_type_they_stay_in(self):
        _t, weights = loading(self.RUN.changed(adapter=None, fp32_embeddings=True))
        assert weights.by_name["model.embed_tokens.weight"].dtype is FP32
        assert weights.by_name["model.layers.0.mlp.up_proj.weight"].dtype is BF16

    def test_saved_modules_come_too(self):
        run = self.RUN.changed(lora_modules_to_save=("embed_tokens",))
        assert held(run) == held(run.changed(loads_through="device")) > held(self.RUN)


def test_layers_leave_the_card_when_the_whole_model_has_been_on_it():
    run = READ.changed(layer_offloading=True, resets_load_peaks=True)
    t, weights = loading(run)
    assert max(levels(t)) >= total(UNTIED)
    assert levels(t)[-1] < total(UNTIED) // 4
    assert weights.adapters
    last = max(index for index, event in enumerate(t.events) if event.action == Action.RESET_PEAKS)
    assert levels(t)[last] >= total(UNTIED)


def test_a_checkpoint_that_is_packed_already_passes_nothing_by():
    packed = replace(UNTIED, checkpoint_quantization="bitsandbytes_4bit")
    name = "model.layers.0.mlp.up_proj.weight"
    t, weights = loading(QLORA, packed)
    assert all(size < weights.shapes[name][0] * weights.shapes[name][1] for size, label in requests(t) if label == name)
    assert sum(kept.nbytes for kept in weights.quantised[name]) == sum(
        kept.nbytes for kept in loading(QLORA)[1].quantised[name]
    )


def test_a_reference_model_is_read_and_cast_like_the_trained_one():
    run = READ.changed(upcasts_at_load=EMBEDDINGS, resets_load_peaks=True)
    t, reference = loading(run, loader=load_reference)
    assert not reference.adapters
    assert levels(t)[-1] >= total(UNTIED)
    assert max(levels(t)) > total(UNTIED) + embedding(UNTIED) * 4


@pytest.mark.parametrize(("sharding", "kept"), [("none", True), ("fsdp2", False)])
def test_nobody_marks_a_reference_model_as_frozen(sharding, kept):
    """So that autocast keeps its copies of weights in fp32 until the pass ends; what is sharded is cast elsewhere."""
    run = READ.changed(sharding=sharding, **({} if sharding == "none" else {"gpus": 2, "data_parallel": 2}))
    _t, reference = loading(run, loader=load_reference)
    assert all((parameter.node is not None) is kept for parameter in reference.by_name.values())


@pytest.mark.parametrize(("settings", "hole"), [("", True), ("expandable_segments:True", False)])
def test_a_second_model_asks_for_less_by_what_the_first_left_idle(settings, hole):
    """Embeddings cast to fp32 leave a hole in the first segment, which cannot be handed back; pages of its own can."""
    run = READ.changed(adapter=None, upcasts_at_load=("embedding",), fp32_embeddings=True, allocator=settings)
    model = replace(TIED, num_hidden_layers=24)
    t, first = loading(run, model)
    load_reference(t, model, run, sharding_of(run))
    asked = [size for size, label in requests(t) if label == "warm-up of the allocator" and size > MIB]
    assert first
    assert asked[0] == total(model) - 2 * MIB
    assert (asked[1] <= total(model) - embedding(model) * 2) is hole
