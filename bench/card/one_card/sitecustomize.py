"""On PYTHONPATH this makes every process that a launcher starts as a rank share one card (see `rank_start.py`)."""

import os
import sys

if os.environ.get("RANKS_CUDA") and "RANK" in os.environ and "vramwise" in " ".join(sys.orig_argv):
    os.environ["LOCAL_RANK"] = "0"
    import rank_start

    rank_start.share_one_card()
