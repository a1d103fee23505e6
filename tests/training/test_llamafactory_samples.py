"""LLaMA-Factory's templates: what a row becomes, and what of it is learnt. No torch."""

import pytest

from vramwise.errors import VramwiseError
from vramwise.training.embedded.llamafactory import templates
from vramwise.training.worker.llamafactory_samples import llamafactory_samples
from vramwise.training.worker.prompts import IGNORED

END, BEGIN = 1, 2


class Letters:
    """A token a letter."""

    eos_token_id, bos_token_id, unk_token_id = END, BEGIN, None

    def encode(self, text, add_special_tokens):
        return [ord(letter) for letter in text]


def sample(template, answers, *, system=None, **changes):
    turns = [{"from": who, "value": text} for answer in answers for who, text in (("human", "ask"), ("gpt", answer))]
    tags = {"role_tag": "from", "content_tag": "value", "user_tag": "human", "assistant_tag": "gpt"}
    block = {"formatting": "sharegpt", "columns": {"messages": "turns", "system": "system"}, "tags": tags}
    block |= {"template": templates()[template], "longest": 500, "train_on_prompt": False, "last_turn_only": False}
    return next(
        llamafactory_samples({"turns": turns, "system": system}, {**block, "thinks": True, **changes}, Letters())
    )


def text(tokens):
    return "".join({END: "$", BEGIN: "^", IGNORED: "_"}.get(token) or chr(token) for token in tokens)


def learnt(one):
    return text(one.labels).strip("_").split("_")


def test_an_answer_without_a_thought_gets_an_empty_one():
    one = sample("qwen3", ["yes"])
    question = "<|im_start|>user\nask<|im_end|>\n<|im_start|>assistant\n"
    assert text(one.input_ids) == question + "<think>\n\n</think>\n\nyes<|im_end|>\n"
    assert learnt(one) == ["<think>\n\n</think>\n\nyes<|im", "end|>\n"]
    assert learnt(sample("qwen3", ["yes"], thinks=False)) == ["yes<|im", "end|>\n"]


def test_thoughts_of_earlier_turns_go_where_the_last_alone_is_learnt():
    thought = "<think>\nhm\n</think>\n\n"
    one = sample("qwen3", [f"{thought}no", f"{thought}yes"], last_turn_only=True)
    assert text(one.input_ids).count("hm") == 1
    assert "".join(learnt(one)).startswith(f"{thought}yes")
    assert text(sample("qwen3", [f"{thought}no"], thinks=False).input_ids).count("hm") == 0


def test_the_systems_text_in_the_first_question():
    one = sample("mistral", ["yes", "no"], system="be good")
    assert text(one.input_ids) == "^[INST] be good\n\nask[/INST] yes$[INST] ask[/INST] no$"
    assert [part for part in learnt(one) if part] == [" yes$", " no$"]


def test_a_template_that_closes_a_sample_by_itself():
    one = sample("falcon", ["yes", "no"])
    assert text(one.input_ids) == "User: ask\nFalcon:yes\nUser: ask\nFalcon:no\n$"
    assert [part for part in learnt(one) if part] == ["yes\n$", "no\n$"]


def test_a_short_question_is_kept_whole():
    assert text(sample("empty", ["a" * 40], longest=20).input_ids) == "ask" + "a" * 17


def test_a_token_that_the_tokenizer_lacks(monkeypatch):
    monkeypatch.setattr(Letters, "convert_tokens_to_ids", lambda self, word: None, raising=False)
    with pytest.raises(VramwiseError, match=r"the template's token \S+ is none of the tokenizer's"):
        sample("chatglm3", ["yes"])
