"""The catalogue of cards, how names are understood, what NVML is asked, and torch versions."""

from typing import Any

import pytest

from vramwise.errors import VramwiseError
from vramwise.facts import gpus, torch
from vramwise.facts.nvml import driver_version, local_gpu
from vramwise.units import GIB, MIB


def test_the_catalogue_is_large_and_each_name_finds_its_own_card() -> None:
    cards = gpus.all_gpus()
    assert len(cards) >= 60
    assert len({card.name for card in cards}) == len(cards)
    for card in cards:
        assert gpus.find_gpu(card.name) == card


def test_no_spelling_belongs_to_two_cards() -> None:
    seen: dict[str, str] = {}
    for card in gpus._catalogue()["cards"]:
        for written in {gpus._squashed(text) for text in [card["name"], *card.get("aliases", [])]}:
            assert seen.setdefault(written, card["name"]) == card["name"]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("4090", "RTX 4090"),
        ("rtx4090", "RTX 4090"),
        ("RTX-4090", "RTX 4090"),
        ("rtx_4090", "RTX 4090"),
        ("RTX 4090 24GB", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "RTX 4090 Laptop"),
        ("1080ti", "GTX 1080 Ti"),
        ("A100", "A100 80GB"),
        ("a100 80GB", "A100 80GB"),
        ("a100-80gb", "A100 80GB"),
        ("A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("a100 40g", "A100 40GB"),
        ("h100", "H100 80GB"),
        ("NVIDIA H100 80GB HBM3", "H100 80GB"),
        ("H100 NVL", "H100 NVL 94GB"),
        ("h200", "H200 141GB"),
        ("l40s", "L40S"),
        ("Tesla T4", "T4"),
        ("v100", "V100 16GB"),
        ("Tesla V100-SXM2-32GB", "V100 32GB"),
        ("mi300x", "MI300X"),
        ("AMD Instinct MI300X", "MI300X"),
        ("AMD Radeon RX 7900 XTX", "RX 7900 XTX"),
        ("RTX 3080", "RTX 3080 10GB"),
        ("RTX 3080 12GB", "RTX 3080 12GB"),
        ("3080 12 GiB", "RTX 3080 12GB"),
        ("4060 Ti 16GB", "RTX 4060 Ti 16GB"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell"),
        ("Quadro RTX 6000", "Quadro RTX 6000"),
        ("a6000", "RTX A6000"),
        ("NVIDIA GB10", "DGX Spark (GB10)"),
    ],
)
def test_names_as_people_and_drivers_write_them(written: str, name: str) -> None:
    assert gpus.find_gpu(written).name == name


@pytest.mark.parametrize(
    ("name", "capability", "bf16", "fp8"),
    [
        ("p100", (6, 0), False, False),
        ("v100", (7, 0), False, False),
        ("t4", (7, 5), False, False),
        ("a100", (8, 0), True, False),
        ("rtx 3090", (8, 6), True, False),
        ("l4", (8, 9), True, True),
        ("h100", (9, 0), True, True),
        ("b200", (10, 0), True, True),
        ("b300", (10, 3), True, True),
        ("rtx 5090", (12, 0), True, True),
        ("dgx spark", (12, 1), True, True),
        ("mi250x", None, True, False),
        ("mi300x", None, True, True),
        ("rx 6900 xt", None, False, False),
    ],
)
def test_capability_and_dtypes(name: str, capability: tuple[int, int] | None, bf16: bool, fp8: bool) -> None:
    card = gpus.find_gpu(name)
    assert (card.capability, card.bf16, card.fp8, card.known) == (capability, bf16, fp8, True)
    assert card.vendor == ("nvidia" if capability else "amd")


@pytest.mark.parametrize("text", ["24GB", "24 GiB", "24g", "24gb", "24576MiB"])
def test_a_bare_size_is_a_card_of_which_nothing_else_is_known(text: str) -> None:
    card = gpus.find_gpu(text)
    assert (card.memory_bytes, card.known, card.capability, card.bf16) == (24 * GIB, False, None, True)
    assert card.name == "24GB"


def test_a_size_below_a_gibibyte_is_refused() -> None:
    with pytest.raises(VramwiseError, match="too small"):
        gpus.find_gpu("24MB")


def test_an_unknown_name_gets_suggestions_and_the_hint_about_sizes() -> None:
    with pytest.raises(VramwiseError, match=r"unknown GPU 'rtx 4091'\. Did you mean RTX 4090.*24GB"):
        gpus.find_gpu("rtx 4091")
    with pytest.raises(VramwiseError) as caught:
        gpus.find_gpu("h1000")
    assert "H100 80GB" in str(caught.value)
    assert str(caught.value).count(" or ") <= 2


@pytest.mark.parametrize("text", ["", "  ", "24", "zzz", "💥", "-"])
def test_nonsense_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(VramwiseError, match="You can also give a size"):
        gpus.find_gpu(text)


def test_memory_that_was_seen_is_used_and_the_derivation_stays_just_below_it() -> None:
    assert gpus.find_gpu("h200").memory_bytes == 143156 * MIB
    seen = [card for card in gpus._catalogue()["cards"] if "usable_mib" in card and not card.get("shared")]
    assert len(seen) >= 30
    for card in seen:
        assert 0.95 < gpus.derived_bytes(card) / gpus.usable_bytes(card) < 1.0, card["name"]
        assert gpus.usable_bytes(card) < card["memory_gib"] * GIB


def test_multiprocessors_are_a_cards_own() -> None:
    """As the makers state them; what a name shares with another card's says nothing."""
    stated = {
        "t4": 40, "v100": 80, "a100": 108, "a10g": 80, "a10": 72, "l4": 58, "l40s": 142, "a2": 10, "rtx-a2000": 26,
        "rtx-2060": 30, "rtx-2080": 46, "rtx-2080-ti": 68, "rtx-3050": 20, "rtx-3060": 28, "rtx-3060-ti": 38,
        "rtx-3070": 46, "rtx-3070-ti": 48, "rtx-3090": 82, "rtx-4070-super": 56, "rtx-4070-ti": 60, "rtx-4080": 76,
        "rtx-4080-super": 80, "rtx-4090": 128, "rtx-4090-laptop": 76, "rtx-5060-ti": 36, "rtx-5090": 170,
        "rtx-5080-laptop": 60, "rtx-pro-6000": 188, "h100": 132, "h100 pcie": 114, "h800": 132, "h800 pcie": 114,
        "h200": 132, "b200": 148, "gh200": 132, "mi300x": 304, "rx 7900 xtx": 96,
    }  # fmt: skip
    assert {name: gpus.find_gpu(name).multiprocessors for name in stated} == stated


def test_cards_of_unknown_multiprocessors_are_few_and_none_is_odd() -> None:
    unknown = [card.name for card in gpus.all_gpus() if card.multiprocessors is None]
    assert unknown == ["B100", "GB300 288GB"]
    assert all(4 <= (card.multiprocessors or 4) <= 320 for card in gpus.all_gpus())


def test_multiprocessors_by_the_drivers_name() -> None:
    assert gpus.multiprocessors_of("NVIDIA H100 PCIe") == 114
    assert gpus.multiprocessors_of("NVIDIA GeForce RTX 3060") == 28
    assert gpus.multiprocessors_of("NVIDIA of another year") is None
    assert gpus.find_gpu("24GB").multiprocessors is None


# NVML


class FakeNvml:
    """Writes what NVML would write; `cards` are (name, uuid, capability, total MiB, reserved MiB)."""

    def __init__(self, *cards: tuple[str, str, tuple[int, int], int, int], fails: str = "") -> None:
        self.cards = cards
        self.fails = fails
        self.shut_down = False

    def __getattr__(self, name: str) -> Any:
        if name == self.fails:
            return lambda *_: 999
        raise AttributeError(name)

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return 9 if self.fails == "init" else 0

    def nvmlShutdown(self) -> int:  # noqa: N802
        self.shut_down = True
        return 0

    def nvmlSystemGetDriverVersion(self, buffer: Any, _length: Any) -> int:  # noqa: N802
        buffer.value = b"580.65.06"
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        count._obj.value = len(self.cards)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:  # noqa: N802
        handle._obj.value = index.value + 1
        return 0

    def nvmlDeviceGetName(self, handle: Any, buffer: Any, _length: Any) -> int:  # noqa: N802
        buffer.value = self.cards[handle.value - 1][0].encode()
        return 0

    def nvmlDeviceGetUUID(self, handle: Any, buffer: Any, _length: Any) -> int:  # noqa: N802
        buffer.value = self.cards[handle.value - 1][1].encode()
        return 0

    def nvmlDeviceGetCudaComputeCapability(self, handle: Any, major: Any, minor: Any) -> int:  # noqa: N802
        major._obj.value, minor._obj.value = self.cards[handle.value - 1][2]
        return 0

    def nvmlDeviceGetMemoryInfo_v2(self, handle: Any, memory: Any) -> int:  # noqa: N802
        assert memory._obj.version >> 24 == 2
        _, _, _, total, reserved = self.cards[handle.value - 1]
        memory._obj.total, memory._obj.reserved = total * MIB, reserved * MIB
        return 9 if self.fails == "memory" else 0


H200 = ("NVIDIA H200", "GPU-aaaa-1", (9, 0), 143771, 615)
T4 = ("Tesla T4", "GPU-bbbb-2", (7, 5), 15360, 448)


def test_the_local_card_and_how_many() -> None:
    library = FakeNvml(H200, H200)
    found = local_gpu(environ={}, library=library)
    assert found is not None
    card, count = found
    assert (card.name, card.memory_bytes, card.capability, count) == ("H200", 143156 * MIB, (9, 0), 2)
    assert card.bf16
    assert card.fp8
    assert card.multiprocessors == 132
    assert library.shut_down


def test_the_driver_says_its_version() -> None:
    library = FakeNvml(H200)
    assert driver_version(library=library) == "580.65.06"
    assert library.shut_down
    assert driver_version(library=FakeNvml(fails="init")) is None


def test_of_different_cards_the_smallest_counts() -> None:
    found = local_gpu(environ={}, library=FakeNvml(H200, T4))
    assert found is not None
    assert (found[0].name, found[0].bf16, found[1]) == ("Tesla T4", False, 2)


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        ("0", ["H200"]),
        ("1", ["Tesla T4"]),
        ("1,0", ["Tesla T4", "H200"]),
        (" 0 , 1 ", ["H200", "Tesla T4"]),
        ("GPU-bbbb", ["Tesla T4"]),
        ("GPU-", []),
        ("0,7,1", ["H200"]),
        ("7", []),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("MIG-aaaa", []),
    ],
)
def test_cuda_visible_devices_is_honoured(visible: str, names: list[str]) -> None:
    found = local_gpu(environ={"CUDA_VISIBLE_DEVICES": visible}, library=FakeNvml(H200, T4))
    if not names:
        assert found is None
    else:
        assert found is not None
        assert found[1] == len(names)
        assert found[0].name in names


@pytest.mark.parametrize("fails", ["init", "memory"])
def test_a_failing_call_means_no_card(fails: str) -> None:
    assert local_gpu(environ={}, library=FakeNvml(H200, fails=fails)) is None


def test_no_cards_or_no_such_function_mean_no_card() -> None:
    assert local_gpu(environ={}, library=FakeNvml()) is None
    assert local_gpu(environ={}, library=object()) is None


def test_a_machine_without_the_library_has_no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vramwise.facts.nvml._LIBRARIES", ("libthere-is-no-such-library.so",))
    assert local_gpu(environ={}) is None


# torch


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.8", (2, 8)),
        ("2.8.1", (2, 8)),
        ("2.8.1+cu128", (2, 8)),
        (" v2.11.0 ", (2, 11)),
        ("2.9.0a0+git12ab", (2, 9)),
        ("2.10.0.dev20260101+cu130", (2, 10)),
        ("2.6.0rc1", (2, 6)),
    ],
)
def test_torch_versions_are_read(text: str, version: tuple[int, int]) -> None:
    assert torch.parse_torch_version(text) == version


@pytest.mark.parametrize("text", ["", "2", "two", "2.x", "2.8.1.", "torch", "2..8", "cu128"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(VramwiseError, match=r"is not a torch version: write it like 2\.8"):
        torch.parse_torch_version(text)


@pytest.mark.parametrize("text", ["1.13", "2.1.2", "2.16", "3.0"])
def test_versions_out_of_range_name_the_range(text: str) -> None:
    with pytest.raises(VramwiseError, match=r"2\.2 to 2\.15"):
        torch.parse_torch_version(text)


@pytest.mark.parametrize("name", ["9" * 5000 + "GB", "9" * 400 + "GB", "9" * 5000, "x" * 100_000])
def test_a_name_or_size_of_thousands_of_digits_is_refused_in_a_short_sentence(name):
    with pytest.raises(VramwiseError) as caught:
        gpus.find_gpu(name)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("a100", "'a100' is treated as A100 80GB: A100 40GB must be named in full"),
        ("v100", "'v100' is treated as V100 16GB: V100 32GB must be named in full"),
        ("h20", "'h20' is treated as H20 96GB: H20 141GB must be named in full"),
        ("a100-40gb", ""),
        ("h100", ""),
        ("rtx-4090", ""),
    ],
)
def test_a_name_that_cards_of_several_sizes_share_says_which_it_is_taken_for(written: str, said: str) -> None:
    assert gpus.find_gpu(written).taken_for == said


def test_a_size_says_what_cards_of_that_size_have() -> None:
    said = gpus.find_gpu("24GB").taken_for
    assert said.startswith("24GB is treated as 24.0 GiB usable by torch; cards sold as 24GB have 21.8 to 23.")
    assert "name the card" in gpus.find_gpu("100GB").taken_for


@pytest.mark.parametrize(
    ("written", "first"), [("rtx-4900", "RTX 4090"), ("4900", "RTX 4090"), ("rtx 5900", "RTX 5090")]
)
def test_digits_that_changed_places_are_put_right_first(written: str, first: str) -> None:
    with pytest.raises(VramwiseError, match=rf"Did you mean {first}"):
        gpus.find_gpu(written)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["4090"], {"RTX 4090", "RTX 4090 Laptop", "RTX 4090 D"}),
        (["sm_90", "90GB"], {"H100 NVL 94GB", "H20 96GB", "H20 141GB", "H200 141GB", "H200 NVL 141GB"}),
        (["amd", "fp8", "200GB"], {"MI325X", "MI350X", "MI355X"}),
        (["no such card"], set()),
    ],
)
def test_words_narrow_the_list(words: list[str], names: set[str]) -> None:
    found = {card.name for card in gpus.matching_gpus(words) if not card.name.startswith("GH200")}
    assert found == names


def test_a_least_size_takes_the_cards_that_are_sold_with_it() -> None:
    assert "RTX 4090" in {card.name for card in gpus.matching_gpus(["24GB"])}
    assert "RTX 3080 12GB" not in {card.name for card in gpus.matching_gpus(["24GB"])}


def test_boards_that_share_the_hosts_memory_are_not_among_the_cards_with_their_own() -> None:
    own = {card.name for card in gpus.discrete_gpus()}
    shared = {card.name for card in gpus.all_gpus()} - own
    assert {"Jetson Orin NX 16GB", "DGX Spark (GB10)"} <= shared
    assert {"T4", "RTX 3090", "H100 80GB"} <= own
