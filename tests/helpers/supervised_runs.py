"""What supervised runs of the tiny example share: its config, a worker with faults, losses."""

import json
import os
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
TINY = ROOT / "examples" / "tiny"
WORKER = str(ROOT / "tests" / "training" / "faulty_worker.py")


def environment(**faults):
    return dict(os.environ) | {
        "PYTHONPATH": str(ROOT / "src"),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "FAULTS": json.dumps(faults),
    }


def losses(folder, name="loss"):
    state = json.loads((folder / "out" / "trainer_state.json").read_text())
    return {entry["step"]: entry[name] for entry in state["log_history"] if name in entry}
