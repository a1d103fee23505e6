"""MCP and the page write the config that the command writes."""

import json

import pytest

from installed import needs
from vramwise.api import new
from vramwise.page.answers import Answers

pytestmark = pytest.mark.usefixtures("brief_searches")
MODEL = "HuggingFaceTB/SmolLM2-135M"


def by_hand(**asked):
    return new(MODEL, gpu="8GB", trainer="trl", text_alone=True, online=False, **asked)


@needs("pydantic")
def test_an_agent_gets_the_same_config():
    from vramwise.mcp.tools import new_config

    found = new_config(MODEL, "8GB", trainer="trl", method="lora", data_format="chat")
    assert found.fits
    assert found.config == by_hand(method="lora", data_format="chat").text
    assert "placeholder" in found.next


def test_the_page_starts_with_the_same_config():
    wishes = {"model": MODEL, "trainer": "trl", "method": "lora", "data_format": "chat", "batch": 16}
    request = {"ask": "start", "settings": {"gpu": "8GB"}, "wishes": wishes}
    found = json.loads(Answers().answer(json.dumps(request)))
    assert found["ok"]
    assert found["text"] == by_hand(method="lora", data_format="chat").text
