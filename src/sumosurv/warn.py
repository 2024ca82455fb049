"""Warnings that point to the user's own line."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

_ROOT = str(Path(__file__).parent)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning for the first caller outside this library."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_ROOT):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
