"""What the host goes through: 8-bit products, Python's autograd functions, lines of a log."""

from dataclasses import replace

import pytest

from opened import make_target, subject_of_text
from vramwise.facts.gpus import find_gpu
from vramwise.facts.rates import efficiency, rates_of
from vramwise.ghost.loops.batches import BatchShape
from vramwise.ghost.work import Kernel
from vramwise.variants.speed.queues import on_card, on_host
from vramwise.variants.speed.timed_step import list_step

BASE = """
base_model: meta-llama/Llama-3.2-1B
datasets: [{path: x, type: alpaca}]
sequence_len: 512
micro_batch_size: 1
gradient_accumulation_steps: 1
optimizer: adamw_torch_fused
learning_rate: 1e-4
adapter: lora
lora_r: 16
lora_alpha: 16
lora_target_linear: true
lora_mlp_kernel: false
lora_qkv_kernel: false
lora_o_kernel: false
"""
LIGER = "plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_rms_norm: true\n"
LAYERS, LINEAR = 16, 7


def counted(extra, what):
    """The sum of something over all kernels of a micro-step."""
    opened = subject_of_text(BASE + extra, make_target(gpu="h200"))
    work = list_step(opened.run, opened.model, BatchShape(1, 512, padded=False))
    return sum(what(kernel) * stretch.times for stretch in work.micro_steps[0] for kernel in stretch.kernels)


@pytest.mark.parametrize(("precision", "written"), [("bf16: true\n", LAYERS * LINEAR), ("fp16: true\n", 0)])
def test_every_8_bit_product_of_bf16_inputs_writes_a_line(precision, written):
    assert counted(precision + "load_in_8bit: true\n", lambda kernel: kernel.lines) == written


def test_8_bit_products_ask_for_outliers_and_for_their_columns_after_gates():
    syncs = counted("bf16: true\nload_in_8bit: true\n", lambda kernel: kernel.family == "sync")
    plain = counted("bf16: true\n", lambda kernel: kernel.family == "sync")
    assert syncs - plain == LAYERS * (LINEAR + 1)


def test_8_bit_kernels_are_launched_by_the_library_and_run_again_under_checkpointing():
    def launched(extra):
        return counted(
            f"bf16: true\nload_in_8bit: true\n{extra}", lambda kernel: kernel.count * (kernel.by == "library")
        )

    assert launched("") == 3 * LAYERS * LINEAR
    assert launched("gradient_checkpointing: true\n") == 2 * launched("")


def test_a_norm_of_liger_is_a_function_each_way():
    functions = counted("bf16: true\n" + LIGER, lambda kernel: kernel.functions)
    assert functions == 2 * (2 * LAYERS + 1)


@pytest.mark.parametrize(("way", "begun"), [("true", 2 * LAYERS), ("false", 0)])
def test_a_checkpointed_block_begins_in_forward_and_again_in_backward(way, begun):
    assert counted(f"bf16: true\ngradient_checkpointing: {way}\n", lambda kernel: kernel.checkpoints) == begun


@pytest.mark.parametrize(("library", "functions"), [("flash_attention_2", 2 * LAYERS), ("sdpa", 0)])
def test_flash_attention_is_a_function_written_in_python(library, functions):
    found = counted(f"bf16: true\nattn_implementation: {library}\n", lambda kernel: kernel.functions)
    assert found == functions


def test_the_begin_of_a_checkpointed_block_costs_the_host():
    kernel, costs = Kernel("stream", 0, 0, "forward", 0), efficiency()
    before = on_host(kernel, costs)
    kernel.checkpoints = 3
    assert on_host(kernel, costs) - before == pytest.approx(3 * costs.host_checkpoint)


def test_a_line_costs_what_a_line_costs():
    kernel, costs = Kernel("stream", 0, 0, "forward", 0), efficiency()
    before = on_host(kernel, costs)
    kernel.lines = 2
    assert on_host(kernel, costs) - before == pytest.approx(2 * costs.host_line)


def test_products_one_after_the_other_are_slower_than_on_a_rested_card():
    rates, costs = rates_of(find_gpu("h200")), efficiency()
    assert rates is not None
    product = Kernel("product", 0, 0, "forward", 0)
    product.dims, product.dtype, product.flops = (1, 8192, 8192, 8192), "bf16", 2.0 * 8192**3
    rested = on_card(product, rates, replace(costs, sustained=1.0)) - costs.kernel
    assert rested / (on_card(product, rates, costs) - costs.kernel) == pytest.approx(costs.sustained)


def step_work(extra):
    opened = subject_of_text(BASE + extra, make_target(gpu="h200"))
    return list_step(opened.run, opened.model, BatchShape(1, 512, padded=False))


def test_bitsandbytes_waits_for_the_card_after_every_parameter():
    opened = subject_of_text(BASE.replace("adamw_torch_fused", "adamw_8bit") + "bf16: true\n", make_target(gpu="h200"))
    update = list_step(opened.run, opened.model, BatchShape(1, 512, padded=False)).update
    syncs = sum((kernel.family == "sync") * stretch.times for stretch in update for kernel in stretch.kernels)
    assert syncs == 2 * LAYERS * LINEAR


def test_8_bit_states_cost_by_element_and_not_by_byte():
    costs, rates = efficiency(), rates_of(find_gpu("h200"))
    kernel = Kernel("blockwise", 6e9, 4e9, "library", 0)
    kernel.flops = 1e9
    assert on_card(kernel, rates, costs) == pytest.approx(1e9 / (132 * costs.blockwise), rel=0.01)
    assert on_card(kernel, rates, costs) > 4 * 10e9 / rates.memory


def test_a_kernel_with_few_blocks_does_not_get_the_whole_memory_rate():
    costs, rates = efficiency(), rates_of(find_gpu("h200"))
    many, few = (Kernel("triton", 1e9, 1e9, "triton", 0) for _ in range(2))
    few.blocks = 16
    assert on_card(few, rates, costs) > 1.5 * on_card(many, rates, costs)


def test_the_trainer_goes_through_every_tensor_adapters_included():
    base = 2 + LAYERS * (LINEAR + 2)  # the embedding, which is tied, the last norm; norms of each layer
    assert step_work("bf16: true\n").tensors == base + 2 * LAYERS * LINEAR
