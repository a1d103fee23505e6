from vramwise.ghost.dtypes import BF16, FP32
from vramwise.ghost.engine import backward
from vramwise.ghost.hardware import Hardware
from vramwise.ghost.ops.elementwise import add, mul, scale
from vramwise.ghost.ops.matmul import linear
from vramwise.ghost.tape import Parameter, Tape
from vramwise.timeline import Action


def tape() -> Tape:
    t = Tape(Hardware())
    # the matrix library's workspaces exist already, so that sizes below are those of the ops alone
    t.workspace()
    t.in_backward = True
    t.workspace()
    t.in_backward = False
    return t


def since(t: Tape, start: int) -> list[str]:
    signs = {int(Action.ALLOC): "+", int(Action.FREE): "-"}
    return [f"{signs[event.action]}{event.size_bytes}" for event in t.events[start:]]


def test_a_storage_is_freed_with_its_last_reference():
    t = tape()
    start = len(t.events)
    tensor = t.new((4, 4), FP32)
    same = tensor
    del tensor
    assert since(t, start) == ["+64"]
    del same
    assert since(t, start) == ["+64", "-64"]
    assert t.events[start].tensor == t.events[start + 1].tensor


def test_an_empty_tensor_allocates_nothing():
    t = tape()
    start = len(t.events)
    t.new((0, 8), FP32)
    assert since(t, start) == []


def test_a_product_keeps_its_operands_until_backward():
    t = tape()
    weight = Parameter(t, "w", (8,), FP32, trainable=True)
    x = t.new((8,), FP32)
    start = len(t.events)
    out = mul(t, weight, x)
    del x
    assert since(t, start) == ["+32"]  # x is saved for the weight's gradient
    grad = t.like(out)
    node = out.node
    del out
    backward(t, node, grad)
    # result freed with `out`; backward makes the weight's gradient, then lets the saved x go
    assert since(t, start)[1:] == ["+32", "-32", "+32", "-32"]
    assert weight.grad is not None


def test_broadcast_gradients_are_summed_down():
    t = tape()
    weight = Parameter(t, "w", (8,), FP32, trainable=True)
    x = t.new((4, 8), FP32)
    out = mul(t, weight, x)
    grad = t.like(out)
    start = len(t.events)
    backward(t, out.node, grad)
    assert since(t, start) == ["+128", "+32", "-128"]
    assert weight.grad is not None
    assert weight.grad.shape == (8,)


def test_a_second_gradient_is_added_in_place_unless_it_is_shared():
    t = tape()
    weight = Parameter(t, "w", (8,), FP32, trainable=True)
    doubled = scale(t, weight)
    out = add(t, scale(t, doubled), scale(t, doubled))
    grad = t.like(out)
    start = len(t.events)
    backward(t, out.node, grad)
    allocated = [event for event in since(t, start) if event.startswith("+")]
    assert len(allocated) == 3  # one for each use, one for `doubled`: the sum of the two uses took none


def test_weights_used_twice_need_a_new_tensor_for_the_sum():
    t = tape()
    weight = Parameter(t, "w", (16, 16), BF16, trainable=True)
    x = t.new((4, 16), BF16)
    out = add(t, linear(t, x, weight), linear(t, x, weight))
    start = len(t.events)
    backward(t, out.node, t.like(out))
    assert since(t, start).count("+512") == 3  # two gradients through a transpose, and their sum


def test_gradients_are_labelled_with_their_parameter():
    t = tape()
    weight = Parameter(t, "layers.0.w", (16, 16), BF16, trainable=True)
    x = t.new((4, 16), BF16)
    out = linear(t, x, weight)
    backward(t, out.node, t.like(out))
    assert weight.grad is not None
    event = t.events[weight.grad.storage.event]
    assert t.tags[event.tag] == ("gradients", "layers.0.w")


def test_a_product_with_a_bias_takes_the_librarys_own_workspace_first():
    """cuBLASLt works through the handle of cuBLAS, which is made with a workspace."""
    t = Tape(Hardware())
    t.bias_workspace()
    t.workspace()
    sizes = [event.size_bytes for event in t.events if event.action == Action.ALLOC]
    assert sizes == [t.hardware.matmul_workspace_bytes, 1024**2]
