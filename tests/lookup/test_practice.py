"""The search by symptom: what a person asks leads to the rule, key or page that answers."""

import tomllib
from pathlib import Path

import pytest

from vramwise.lookup.search import Ranking, entries, pages_folder, search, words_of

ROOT = Path(__file__).parents[2]


def names(question, count=5, **asked):
    return [found.entry.name for found in search(question, limit=count, **asked)]


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("oom after eval", "eval-peak"),
        ("CUDA OOM during validation", "eval-batch-differs"),
        ("memory grows every step", "unpadded-sequences"),
        ("fragmentation", "allocator-not-expandable"),
        ("logits too big vocabulary", "logits-dominate"),
        ("host ram full dataloader workers", "prefetch-host-memory"),
        ("deepspeed zero3 qlora", "nonreentrant-qlora-zero3"),
        ("moe experts not quantized", "qlora-experts-unquantised"),
        ("what does gradient_checkpointing do", "gradient_checkpointing"),
        ("diagnose a log", "diagnose.md#what-it-reads"),
    ],
)
def test_a_symptom_finds_its_answer(question, wanted):
    assert wanted in names(question)


def test_what_is_named_comes_first():
    assert names("what does gradient_checkpointing do?")[0] == "gradient_checkpointing"
    assert names("why eval-batch-differs")[0] == "eval-batch-differs"


def test_kinds_narrow_and_nonsense_finds_nothing():
    assert {found.entry.kind for found in search("eval batch", kinds=("key",))} == {"key"}
    assert search("xyzzy quux") == []
    assert search("") == []
    assert search("the of and") == []


def test_a_long_question_is_cut():
    assert search("eval " * 100_000)


def test_ranking_counts_rare_words_and_forgives_length():
    texts = [words_of(text) for text in ("memory of eval", "memory memory memory", "eval " + "other words " * 50)]
    first, second, third = Ranking(texts).scores(words_of("eval memory"))
    assert first > third > 0
    assert first > second > 0


def test_rules_keys_and_pages_are_all_there():
    kinds = {entry.kind for entry in entries()}
    assert kinds == {"rule", "key", "page"}
    assert len({(entry.kind, entry.name) for entry in entries()}) == len(entries())


def test_every_page_for_users_is_shipped():
    """In the wheel the pages lie beside the search."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert "/docs/*.md" in wheel["include"]
    assert wheel["sources"]["docs"] == "vramwise/lookup/pages"
    assert (pages_folder(), entries.__module__) == (ROOT / "docs", "vramwise.lookup.search")


def test_the_command_ranks_and_says_where_to_read_on(vramwise):
    shown = vramwise("rules", "--search", "oom after eval")
    assert shown.exit_code == 0
    assert shown.stdout.startswith("eval-peak (rule): ")
    assert "vramwise explain eval-peak" in shown.stdout
    nothing = vramwise("rules", "--search", "xyzzy")
    assert nothing.exit_code == 1
    assert "nothing found for 'xyzzy'" in nothing.stdout
