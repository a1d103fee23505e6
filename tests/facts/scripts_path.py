"""Makes scripts/golden_parameters.py importable: the golden file and its tests share one fingerprint."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "scripts"))

import golden_parameters

__all__ = ["golden_parameters"]
