"""What the shell offers: rule ids, cards, model names. And the list of cards."""

import json

import click
import pytest
from click.shell_completion import ShellComplete

from vramwise.cli.main import cli
from vramwise.facts.gpus import all_gpus, find_gpu


def offered(*words: str) -> list[str]:
    *before, incomplete = words
    shell = ShellComplete(cli, {}, "vramwise", "_VRAMWISE_COMPLETE")
    return [item.value for item in shell.get_completions(list(before), incomplete)]


def test_rule_ids():
    assert offered("explain", "eval-b") == ["eval-batch-differs"]
    assert offered("check", "--select", "tight-fit,eval-b") == ["tight-fit,eval-batch-differs"]
    assert "does-not-fit" in offered("check", "--ignore", "")


def test_cards_as_they_are_written_in_a_shell():
    assert "rtx-4090" in offered("predict", "--gpu", "rtx-40")
    assert "4090" in offered("check", "--gpu", "40")
    for word in offered("check", "--gpu", ""):
        assert find_gpu(word).known


def test_every_card_is_offered_under_a_name_that_finds_it():
    found = {find_gpu(word).name for word in offered("check", "--gpu", "")}
    assert found == {card.name for card in all_gpus()}


@pytest.mark.parametrize("verb", ["predict", "fit", "diagnose"])
def test_models_of_the_catalogue(verb):
    assert "meta-llama/Llama-3.2-1B" in offered(verb, "--model", "meta-llama/Llama-3.2")
    assert offered(verb, "--model", "./no-such") == ["./no-such"]  # the shell's own to complete


def test_the_list_of_cards_has_a_head_and_narrows(vramwise):
    shown = vramwise("gpus", "h100").stdout.splitlines()
    assert shown[0].split() == ["card", "memory", "usable", "arch", "computes", "in"]
    assert [line.split()[0] for line in shown[1:]] == ["H100", "H100", "H100"]
    assert "sm_90" in shown[1]


def test_no_card_is_no_error_but_said(vramwise):
    result = vramwise("gpus", "no-such-card")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "no card matches no-such-card" in result.stderr


def test_cards_for_programs(vramwise):
    listed = json.loads(vramwise("gpus", "rtx", "4090", "--format", "json").stdout)
    assert [card["name"] for card in listed["gpus"]] == ["RTX 4090", "RTX 4090 Laptop", "RTX 4090 D"]
    assert listed["gpus"][0]["capability"] == "8.9"


def test_a_card_that_was_taken_for_another_is_said(vramwise, tmp_path):
    (tmp_path / "c.yml").write_text("base_model: meta-llama/Llama-3.2-1B\nadapter: lora\n")
    assert "'a100' is treated as A100 80GB" in vramwise("check", tmp_path / "c.yml", "--gpu", "a100").stderr
    assert vramwise("check", tmp_path / "c.yml", "--gpu", "a100-80gb").stderr == ""


def test_words_that_open_more():
    assert offered("fit", "--allow", "q") == ["qlora"]
    assert "8bit-optimizer" in offered("fit", "--allow", "")


def test_click_offers_options_still():
    assert isinstance(cli, click.Group)
    assert "--pedantic" in offered("check", "--ped")
