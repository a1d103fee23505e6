"""Small configs and what Axolotl 0.21's own validation said of them: what its release refuses anew, or no longer.

Recorded with 0.21.0 on two GPUs (sm_90); `refused` is the beginning of its message, null where it accepts. Each text was
completed with a model, a dataset and batch keys.
"""

import json
from pathlib import Path

import pytest

from opened import check_document, make_target
from vramwise import rules
from vramwise.documents.document import parse_document
from vramwise.types import Severity

CASES = json.loads((Path(__file__).parents[1] / "data" / "axolotl-0.21-cases.json").read_text())
COMPLETED = "base_model: meta-llama/Llama-3.2-1B\ndatasets:\n  - path: x\n    type: alpaca\nnum_epochs: 1\n"
BEYOND = {rule.id for rule in rules() if rule.beyond_trainer}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["text"].replace("\n", " ")[:60])
def test_we_refuse_what_0_21_refuses(case):
    document = parse_document("config.yml", (COMPLETED + case["text"]).encode())
    target = make_target(gpu="h100", gpus=2, versions=("axolotl==0.21.0",))
    findings = check_document(document, target).findings
    errors = {found.rule for found in findings if found.severity is Severity.ERROR}
    if case["refused"]:
        assert errors, case["refused"]
    else:
        assert errors <= BEYOND
