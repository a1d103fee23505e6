"""OFT: the upper triangle of each block is trained; the input goes through fp32 and half precision on its way."""

from vramwise.ghost.dtypes import BF16, FP32
from vramwise.ghost.hardware import Hardware
from vramwise.ghost.model.linear import Linear, OftLinear, rotation_shape
from vramwise.ghost.tape import Parameter, Tape
from vramwise.timeline import Action

TOKENS, COLUMNS, BLOCK = 256, 128, 32
X = TOKENS * COLUMNS


def made(*, quantised):
    t = Tape(Hardware())
    t.workspace()
    t.autocast = BF16
    weight = Parameter(t, "weight", (COLUMNS, COLUMNS), BF16, trainable=False)
    rotation = Parameter(t, "rotation", rotation_shape(COLUMNS, BLOCK), FP32, trainable=True)
    x = t.new((TOKENS, COLUMNS), BF16)
    layer = OftLinear(Linear(weight), rotation, BLOCK, quantised=quantised)
    before = len(t.events)
    out = layer(t, x)
    events = t.events[before:]
    assert out.node is not None
    return [event.size_bytes for event in events if event.action == Action.ALLOC and event.size_bytes >= X]


def test_the_upper_triangle_of_each_block_is_trained():
    assert rotation_shape(2048, 32) == (64, 496)


def test_the_input_is_cast_rotated_copied_and_cast_back():
    """fp32, bf16 for the product, its result, a copy in order, fp32, bf16; then the base layer's output."""
    assert made(quantised=False) == [4 * X, 2 * X, 2 * X, 2 * X, 4 * X, 2 * X, 2 * X]


def test_a_quantised_base_gets_the_copy_as_it_is():
    assert made(quantised=True) == [4 * X, 2 * X, 2 * X, 2 * X, 2 * X]
