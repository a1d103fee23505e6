import re
from pathlib import Path

import pytest

from vramwise.allocator.settings import AllocatorSettings, effective_settings, first_version_with, parse_settings
from vramwise.errors import VramwiseError
from vramwise.units import MIB

CUDA, HIP, GENERIC = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"


@pytest.mark.parametrize(
    ("torch", "env", "expected"),
    [
        ((2, 2), {CUDA: "a:1"}, ("a:1", CUDA)),
        ((2, 8), {GENERIC: "a:1"}, ("", None)),
        ((2, 9), {GENERIC: "a:1"}, ("", None)),
        ((2, 9), {GENERIC: "a:1", CUDA: "b:2"}, ("b:2", CUDA)),
        ((2, 10), {GENERIC: "a:1"}, ("a:1", GENERIC)),
        ((2, 10), {GENERIC: "a:1", HIP: "c:3"}, ("c:3", HIP)),
        ((2, 13), {GENERIC: "a:1", CUDA: "b:2", HIP: "c:3"}, ("b:2", CUDA)),
        ((2, 13), {GENERIC: "a:1", CUDA: ""}, ("", CUDA)),
        ((2, 13), {}, ("", None)),
    ],
)
def test_which_variable_is_read(torch, env, expected):
    assert effective_settings(torch, env) == expected


def test_an_empty_string_is_torchs_default():
    assert parse_settings("", (2, 11)) == AllocatorSettings()


def test_all_options_together():
    text = (
        "backend:native, expandable_segments:True,max_split_size_mb:128,max_non_split_rounding_mb:64,"
        "garbage_collection_threshold:0.8,large_segment_size_mb:32,per_process_memory_fraction:0.5,"
    )
    assert parse_settings(text, (2, 11)) == AllocatorSettings(
        text=text,
        expandable_segments=True,
        max_split_bytes=128 * MIB,
        max_non_split_rounding_bytes=64 * MIB,
        garbage_collection_threshold=0.8,
        large_segment_bytes=32 * MIB,
        memory_fraction=0.5,
    )


# What torch 2.13's own parser made of these lists (AcceleratorAllocatorConfig::roundup_power2_divisions).
@pytest.mark.parametrize(
    ("value", "slots"),
    [
        ("16", [16] * 16),
        ("[>:4]", [0] + [4] * 15),
        ("[256:1,512:2,1024:4,>:8]", [1] * 9 + [2, 4] + [8] * 5),
        ("[2:2,64:8]", [2, 2, 0, 0, 0, 0, 8] + [0] * 9),
        ("[256:1,>:4,1024:8]", [1] * 9 + [4, 8] + [4] * 5),
        ("[65536:4,>:2]", [4] * 16),
        ("[8:4,2:2,>:16]", [4, 2] + [16] * 14),
        ("[]", [0] * 16),
    ],
)
def test_roundup_divisions(value, slots):
    settings = parse_settings(f"roundup_power2_divisions:{value}", (2, 13))
    assert settings.roundup_divisions == tuple(slots)


def test_up_to_2_9_the_rest_overwrites_the_last_named_slot():
    text = "roundup_power2_divisions:[256:1,512:2,>:4]"
    assert parse_settings(text, (2, 9)).roundup_divisions == (1,) * 9 + (4,) * 7
    assert parse_settings(text, (2, 10)).roundup_divisions == (1,) * 9 + (2,) + (4,) * 6


@pytest.mark.parametrize(
    "text",
    [
        "release_lock_on_cudamalloc:True",
        "pinned_use_cuda_host_register:True,pinned_num_register_threads:8",
        "pinned_use_background_threads:True",
        "graph_capture_record_stream_reuse:True",
    ],
)
def test_host_options_change_nothing(text):
    assert parse_settings(text, (2, 11)) == AllocatorSettings(text=text)


@pytest.mark.parametrize(
    "text", ["expandable_segments_reserve:40G", "expandable_segments_reserve_by_class:[a:0.5,b:9G]"]
)
def test_address_space_options_of_2_15_change_nothing(text):
    assert parse_settings(text, (2, 15)) == AllocatorSettings(text=text)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("", (2, 2)),
        ("expandable_segments:True", (2, 2)),
        ("expandable_segments:True,expandable_segments_reserve:0.5,large_segment_size_mb:32", (2, 15)),
    ],
)
def test_first_version_with_every_option(text, version):
    assert first_version_with(text) == version


def test_numbers_are_read_as_c_reads_them():
    assert parse_settings("max_split_size_mb:30.5", (2, 11)).max_split_bytes == 30 * MIB
    # A negative size wraps around to one that nothing reaches.
    assert parse_settings("max_split_size_mb:-1", (2, 11)).max_split_bytes > 1 << 60


@pytest.mark.parametrize(
    ("text", "torch", "message"),
    [
        ("expandable_segment:True", (2, 11), "'expandable_segment' is not an option of torch's CUDA allocator"),
        ("expandable_segments:true", (2, 11), "takes True or False"),
        ("expandable_segments=True", (2, 11), "option:value"),
        ("expandable_segments:True,,", (2, 11), "option:value"),
        ("expandable_segments", (2, 11), "option:value"),
        ("expandable_segments:", (2, 11), "option:value"),
        ("max_split_size_mb:128 expandable_segments:True", (2, 11), "option:value"),
        ("max_split_size_mb:x", (2, 11), "takes a whole number, not 'x'"),
        ("max_split_size_mb:99999999999999999999999", (2, 11), "takes a whole number"),
        ("max_split_size_mb:20", (2, 9), "must be above 20, not 20"),
        ("max_split_size_mb:19", (2, 10), "must be at least 20, not 19"),
        ("max_split_size_mb:20,large_segment_size_mb:30", (2, 13), "must be at least 30, not 20"),
        ("max_non_split_rounding_mb:64", (2, 5), "torch 2.5 does not know .* it came with torch 2.6"),
        ("per_process_memory_fraction:0.5", (2, 9), "it came with torch 2.10"),
        ("per_process_memory_fraction:1.5", (2, 10), "between 0 and 1, not 1.5"),
        ("per_process_memory_fraction:[1:1]", (2, 10), "not '\\[1:1\\]'"),
        ("large_segment_size_mb:32", (2, 10), "it came with torch 2.11"),
        ("large_segment_size_mb:10", (2, 11), "must be above 10"),
        ("pinned_use_background_threads:True", (2, 5), "it came with torch 2.6"),
        ("graph_capture_record_stream_reuse:True", (2, 8), "it came with torch 2.9"),
        ("throw_on_cudamalloc_oom:True", (2, 11), "it came with torch 2.12"),
        ("pinned_max_cached_size_mb:64", (2, 12), "it came with torch 2.13"),
        ("expandable_segments_reserve:0.5", (2, 14), "torch 2.14 does not know .* it came with torch 2.15"),
        ("garbage_collection_threshold:1", (2, 11), "between 0 and 1"),
        ("garbage_collection_threshold:0", (2, 11), "between 0 and 1"),
        ("garbage_collection_threshold:no", (2, 11), "takes a number"),
        ("roundup_power2_divisions:3", (2, 11), "power of two, not 3"),
        ("roundup_power2_divisions:0", (2, 11), "power of two, not 0"),
        ("roundup_power2_divisions:[256:3]", (2, 11), "power of two or 0, not 3"),
        ("roundup_power2_divisions:[300:1]", (2, 11), "'300' must be a power of two"),
        ("roundup_power2_divisions:[256]", (2, 11), "size:divisions"),
        ("roundup_power2_divisions:[256:1", (2, 11), "option:value"),
        ("backend:jemalloc", (2, 11), "native or cudaMallocAsync"),
    ],
)
def test_what_torch_refuses_is_refused(text, torch, message):
    with pytest.raises(VramwiseError, match=message):
        parse_settings(text, torch)


def test_settings_import_nothing_heavy():
    source = Path(parse_settings.__code__.co_filename).read_text(encoding="utf-8")
    imported = set(re.findall(r"^(?:from|import) (\S+)", source, re.MULTILINE))
    light = {"__future__", "collections.abc", "dataclasses", "re", "typing", "vramwise.errors", "vramwise.units"}
    assert imported <= light
