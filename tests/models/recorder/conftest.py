"""Makes bench/ and the models beside this file importable."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).resolve().parents[3] / "bench")]
