"""Functions that write records of benchmarks, imported from ``paper/record.py``."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from paper.record import current_commit, make_record, save_record

__all__ = ["current_commit", "make_record", "save_record"]
