"""Messages as they really arrive: folded, begun a line late, in a notebook's page, cut off; none of their figures lost."""

import io
import textwrap

import pytest

import vramwise
from failure_logs import LOSS, MLP, MODULE, STEP, TRAIN, bar, lines, oom, traceback

GIB = 1024**3
HTML = '<span style="color: var(--ansi-red)">{}</span><span style="font-weight: 400">: {}</span></pre>'


def diagnose(log):
    return vramwise.diagnose(io.BytesIO(log.encode()))


def figures(log):
    memory = diagnose(log).symptom.memory
    return [
        None if size is None else round(size / GIB, 2)
        for size in (memory.requested_bytes, memory.total_bytes, memory.free_bytes, memory.allocated_bytes)
    ]


def at_width(text, width):
    return "\n".join(text[at : at + width] for at in range(0, len(text), width))


MESSAGE = oom(
    "3.50 GiB", total="47.54 GiB", free="1.25 GiB", allocated="43.75 GiB", pieces="1.13 GiB", used="46.10 GiB"
)
EXPECTED = [3.5, 47.54, 1.25, 43.75]


@pytest.mark.parametrize("width", range(40, 130))
def test_a_terminal_may_fold_anywhere(width):
    assert figures(at_width(MESSAGE, width)) == EXPECTED
    assert diagnose(at_width(MESSAGE, width)).symptom.memory.unallocated_bytes == int(1.13 * GIB)


@pytest.mark.parametrize("width", [60, 79, 100])
@pytest.mark.parametrize("indent", ["", "    ", "│ "])
def test_a_logger_folds_at_blanks(width, indent):
    assert figures(textwrap.fill(MESSAGE, width, subsequent_indent=indent)) == EXPECTED


def test_the_message_may_begin_on_the_next_line():
    name, _, message = MESSAGE.partition(": ")
    assert figures(f"{name}:\n{message}\n") == EXPECTED
    assert figures(f"{name}: \n      {message}\n{MESSAGE}\n") == EXPECTED


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "RuntimeError: expected mat1 and mat2 to have the same dtype, but got: float != c10::BFloat16",
            "mixed-operands",
        ),
        ("ValueError: Attempting to unscale FP16 gradients.", "fp16-trainable-weights"),
        ("RuntimeError: DataLoader worker (pid 71) is killed by signal: Bus error.", "host-shared-memory"),
    ],
)
def test_other_messages_are_folded_too(text, cause):
    for width in range(30, len(text)):
        assert diagnose(at_width(text, width)).causes[0].id == cause, width


def test_what_follows_an_exception_is_not_taken_for_its_message():
    log = lines(
        "KeyError: 'labels'",
        "W1 api.py:9] Sending process 4 closing signal SIGTERM",
        "failed (exitcode: -9) local_rank: 0",
    )
    kinds = [(symptom.kind, symptom.quote.line) for symptom in diagnose(log).log.symptoms]
    assert kinds == [("exception", 1), ("aftermath", 2), ("host-killed", 3)]


def test_a_notebook_saved_as_a_page_or_as_json():
    name, _, message = MESSAGE.removeprefix("torch.").partition(": ")
    assert figures(HTML.format(name, message)) == EXPECTED
    escaped = f'      "\\u001b[0;31m{name}\\u001b[0m: {message}"\n'
    assert figures(escaped) == EXPECTED


def test_a_notebook_that_ends_within_its_traceback():
    log = lines("OutOfMemoryError            Traceback (most recent call last)", "----> 1 trainer.train()")
    assert diagnose(log).verdict == "diagnosed"
    assert diagnose(log.replace("OutOfMemory", "Key")).sentence.endswith("This is not a memory failure.")
    assert diagnose(log.replace("OutOfMemory", "Runtime")).verdict == "unexplained"


def test_torchs_own_warning_is_a_failure_where_nothing_else_is():
    warned = (
        "[W11 CUDACachingAllocator.cpp:3934] memory allocation failed with OOM on device 0 while trying to allocate "
        "2147483648 bytes (free: 1073741824, total: 25769803776)."
    )
    assert figures(warned) == [2.0, 24.0, 1.0, None]
    assert figures(lines(warned, MESSAGE)) == EXPECTED


@pytest.mark.parametrize(
    ("text", "cause", "said"),
    [
        (
            "(EngineCore_0 pid=7) ERROR 01-02 03:04:05 [core.py:71] ValueError: Free memory on device cuda:0 (10.5/23.5 GiB) on "
            "startup is less than desired GPU memory utilization (0.9, 21.15 GiB). Decrease it.",
            "vllm-share",
            "10.5 of its 23.5 GiB were free",
        ),
        ("ValueError: No available memory for the cache blocks. Try increasing it.", "vllm-cache", "no room for the KV cache"),
        (
            "ValueError: The model's max seq len (8192) is larger than the maximum number of tokens that can be stored in "
            "KV cache (512).",
            "vllm-cache",
            "no room",
        ),
        ("CUDA Error: out of memory at /build/csrc/cumem_allocator.cpp:62", "outside-torch", "waking from sleep"),
        (
            "RuntimeError: Expected q_dtype == torch::kFloat16 || ((is_sm8x || is_sm90) && q_dtype == torch::kBFloat16) to be true",
            "flash-needs-half",
            "or bf16 on an older card",
        ),
        ("RuntimeError: cublas runtime error : resource allocation failed at THCGeneral.cpp:1", "outside-torch", "cuBLAS"),
        ("ray.exceptions.RayTaskError(OutOfMemoryError): ray::fit() (pid=1, ip=10.0.0.1)", "capacity", "used up"),
    ],
)  # fmt: skip
def test_texts_of_other_libraries(text, cause, said):
    diagnosis = diagnose(text)
    assert diagnosis.causes[0].id == cause
    assert said in diagnosis.sentence
    assert diagnosis.failed


RECOMPUTED = (
    "torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: Recomputed values for the following tensors have different "
    "metadata than during the forward pass.\ntensor at position 4:\n"
    "saved metadata: {'shape': torch.Size([2, 33, 64]), 'dtype': torch.bfloat16, 'device': device(type='cuda', index=0)}\n"
    "recomputed metadata: {'shape': torch.Size([2, 66, 64]), 'dtype': torch.bfloat16, 'device': device(type='cuda', index=0)}\n"
)


def test_a_recompute_message_that_is_cut_off_is_not_taken_for_dtypes():
    shapes = RECOMPUTED.index("[2, 66, 64])") + len("[2, 66, 64])")
    for end in range(RECOMPUTED.index("tensor at"), len(RECOMPUTED)):
        cause = diagnose(RECOMPUTED[:end]).causes[0]
        assert cause.id == "recompute-changed", RECOMPUTED[:end]
        assert ("shape [2, 33, 64], then [2, 66, 64]" in cause.sentence) == (end >= shapes)


def test_a_bar_that_counts_what_is_written_counts_no_steps():
    saving = lines("Will use up to 40 GiB for saving.", bar(3, 28), MESSAGE)
    symptom = diagnose(saving).symptom
    assert (symptom.phase, symptom.step) == ("save", None)
    trained = lines(bar(90, 100), "Saving model checkpoint to out", bar(3, 28), MESSAGE)
    assert (diagnose(trained).symptom.phase, diagnose(trained).symptom.step) == ("save", 91)
    went_on = lines(bar(50, 100), "Saving model checkpoint to out", bar(28, 28), bar(51, 100), bar(53, 100), MESSAGE)
    assert (diagnose(went_on).symptom.phase, diagnose(went_on).symptom.step) == ("train", 54)


def test_more_than_the_card_has_is_no_batch_to_halve():
    huge = oom(
        "341.00 GiB", total="79.15 GiB", free="60.00 GiB", allocated="18.00 GiB", pieces="500.00 MiB", used="19.10 GiB"
    )
    cause = diagnose(lines(bar(0, 40), traceback(TRAIN, STEP, LOSS, MODULE, MLP), huge)).causes[0]
    assert cause.id == "impossible-request"
    assert "4.3 times all available memory" in cause.sentence
    assert not any("micro" in remedy.title.lower() for remedy in cause.remedies)


def test_what_is_not_accounted_for_is_said():
    told = "RuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 24.00 GiB total capacity; 17.00 GiB already allocated; 500.00 MiB free; 17.01 GiB reserved in total by PyTorch)"  # fmt: skip
    cause = diagnose(told).causes[0]
    assert cause.id == "other-process"
    assert "at least 4.5 GiB" in cause.sentence
    assert "6.5 GiB are used outside torch: up to 2.0 GiB of that may be this process's own" in cause.evidence[0]


def test_processes_that_torch_lists_are_counted():
    listed = MESSAGE.replace(
        "Including non-PyTorch memory, this process has 46.10 GiB memory in use.",
        "Process 11 has 3.00 GiB memory in use. Process 12 has 30.00 GiB memory in use. Process 13 has 13.00 GiB memory in use.",
    ).replace("43.75 GiB is allocated", "12.00 GiB is allocated").replace("1.13 GiB", "100.00 MiB")  # fmt: skip
    cause = diagnose(listed).causes[0]
    assert (cause.id, diagnose(listed).symptom.memory.this_process_bytes) == ("other-process", 13 * GIB)
    assert "33.3 GiB" in cause.sentence


@pytest.mark.parametrize(
    "text",
    [
        "KeyError: 'input_ids'",
        "[rank0]:[E1 ProcessGroupNCCL.cpp:7] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE)",
        "RuntimeError: MPS backend out of memory (MPS allocated: 5.00 GB, other allocations: 1.00 GB, max allowed: 6.10 GB). Tried to allocate 300.00 MB on private pool.",
    ],
)
def test_no_cuda_snapshot_is_asked_of_what_is_none_of_cudas(text):
    diagnosis = diagnose(text)
    assert diagnosis.failed
    assert not any("_record_memory_history" in step for step in diagnosis.next_steps)
