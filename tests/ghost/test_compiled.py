"""torch.compile and fp8: recorded runs of the real Axolotl, and how a program is replayed."""

import json
from functools import cache
from pathlib import Path

import pytest

import axolotl_memory as axolotl
from vramwise.ghost.compiled import expanded
from vramwise.models.compiled import Program
from vramwise.variants.speed.step import speed_of

FILE = Path(__file__).parents[1] / "data" / "truth" / "axolotl-compiled.jsonl"
ROWS = {row["name"]: row for row in axolotl.rows([FILE])}


@cache
def errors(name: str) -> tuple[float, float]:
    """Predicted against measured, allocated and reserved."""
    guess, truth = axolotl.predicted(ROWS[name])[0], axolotl.measured(ROWS[name])
    return guess.allocated / truth.allocated - 1, guess.reserved / truth.reserved - 1


def seconds(row, folder) -> tuple[float, float]:
    """A step's seconds, predicted and measured without the steps that compile."""
    subject = axolotl.subject_of(row, folder)
    prediction = subject.prediction(steps=2)
    times = sorted(row["times"][2:])
    return speed_of(prediction.run, prediction.model).step_seconds, times[len(times) // 2]


@pytest.mark.parametrize("name", [name for name in ROWS if "cce" in name] + ["fp8_full_llama1b_pad"])
def test_cut_cross_entropy_and_uncompiled_fp8_are_exact(name):
    allocated, reserved = errors(name)
    assert abs(allocated) < 0.0001
    assert abs(reserved) < 0.0003


def test_compiled_fp8():
    allocated, reserved = errors("time_full_llama8b8_fp8_compile")
    assert abs(allocated) < 0.02
    assert abs(reserved) < 0.005


def test_compiled_fp8_is_faster_than_bf16_by_as_much_as_on_the_card(tmp_path):
    compiled = seconds(ROWS["time_full_llama8b8_fp8_compile"], tmp_path)
    plain = seconds(ROWS["time_full_llama8b8_bf16"], tmp_path)
    assert compiled[0] == pytest.approx(compiled[1], rel=0.15)
    assert plain[0] / compiled[0] == pytest.approx(plain[1] / compiled[1], rel=0.1)


def test_fp8_without_compile_is_slower_than_bf16(tmp_path):
    row = ROWS["time_full_llama8b8_bf16"]
    fp8 = {**row, "config": {**row["config"], "fp8": True}}
    assert seconds(fp8, tmp_path)[0] > seconds(row, tmp_path)[0]


WORDS = ["B*H:float32", "B*H", "H", "relu", "B", "4:bfloat16!"]


def program(*halves, gradients=(), returns=((0, 0, 0, False),)) -> Program:
    """A program of parts; every part is (loop, rows)."""
    parts = [[{"loop": loop, "rows": rows} for loop, rows in half] for half in halves]
    return Program({"halves": parts, "words": WORDS, "gradients": list(gradients), "returns": list(returns)})


UP, DOWN = {"from": 0, "to": 0, "down": False}, {"from": 0, "to": 0, "down": True}
KERNEL = [3, [1], [1], []]


def steps(made: Program, layers: int, half: int) -> list[tuple[int, object]]:
    """The steps of a half, kernels by their name."""
    found = expanded(made, layers, (("B", 2), ("H", 8))).halves[half].steps
    return [(slot, what if slot >= 0 else what.name) for slot, what in found]


def test_buffers_of_layers_end_in_the_backward_of_their_layer():
    forward = [(UP, [[0, ["in", 1, 0, 1, 0]], KERNEL])]
    made = program(forward, [(DOWN, [KERNEL, 0])])
    assert steps(made, 3, 0) == [(0, 16), (-1, "relu"), (1, 16), (-1, "relu"), (2, 16), (-1, "relu")]
    assert [slot for slot, what in steps(made, 3, 1) if what is None] == [2, 1, 0]


def test_a_buffer_takes_the_block_of_the_one_freed_right_before():
    rows = [[0, ["at", 0, 0, 2]], KERNEL, 0, [0, ["at", 0, 0, 5]], KERNEL, 0]
    made = program([(None, rows)], [])
    assert steps(made, 1, 0) == [(0, 16), (-1, "relu"), (1, [0]), (-1, "relu"), (1, None)]


def test_a_block_is_not_held_where_that_raises_the_peak():
    """The second kernel is the largest: what is free meanwhile is not kept for the third."""
    small = [[0, ["at", 0, 0, 2]], KERNEL, 0]
    large = [[1, ["at", 0, 0, 6]], [1, ["at", 0, 0, 6]], KERNEL, 0]
    made = program([(None, [*small, *large, [0, ["at", 0, 0, 9]], KERNEL, 0])], [])
    assert [what for slot, what in steps(made, 1, 0) if isinstance(what, list)] == []


def test_gradients_are_found_by_the_name_of_their_parameter():
    key = "l_args_0_modules_model_modules_layers_modules_modules_mlp_parameters_weight_"
    backward = [(DOWN, [[0, ["out"]], KERNEL])]
    made = program([(None, [[0, ["out"]]])], backward, gradients=[[key, [0, 0, 0], {}]])
    found = expanded(made, 2, (("B", 2), ("H", 8))).gradients
    assert found == {f"layers_modules_{layer}_modules_mlp_parameters_weight_": 2 - layer for layer in (0, 1)}


def test_every_program_that_ships_can_be_worked_out_for_any_depth():
    from vramwise.bundled import bundled_json
    from vramwise.models.compiled import FILE as SHIPPED
    from vramwise.models.compiled import _program

    sides = {"B": 1, "S": 64, "H": 64, "I": 128, "N": 4, "M": 2, "D": 16, "V": 512, "R": 8}
    sides |= {"T": 64, "E": 65, "G": 2, "W": 8, "Q": 64, "K": 32}
    keys = bundled_json(SHIPPED)["programs"]
    assert len(json.dumps(keys)) < 500_000
    for key in keys:
        made = _program(key)
        for layers in (4, 9):
            whole = expanded(made, layers, tuple(sides.items()))
            taken = {what[0] for half in whole.halves for _, what in half.steps if isinstance(what, list)}
            freed = {slot for half in whole.halves for slot, what in half.steps if slot >= 0 and what is None}
            handed = {*whole.gradients.values(), *whole.returns}
            assert taken.isdisjoint(freed), key
            assert taken | freed | handed == set(range(whole.slots)), key
