"""Where training runs: the device, and how many threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["explain_memory", "find_device", "threads"]

_ONE_THREAD_WORK = 2e8  # multiply-adds of a training step below which a second thread costs more than it gives


def find_device(name: str) -> torch.device:
    """The device called "auto" (CUDA if available), "cpu" or "cuda"."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device is 'auto', 'cpu' or 'cuda'; got {name!r}.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("device='cuda' was asked for and torch sees no CUDA device; use device='auto' or 'cpu'.")
    return device


@contextmanager
def threads(work: float = 0.0) -> Iterator[None]:
    """One thread if a step is small, as several would mostly wait for each other; else torch's own number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if work < _ONE_THREAD_WORK else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def explain_memory(remedy: str) -> Iterator[None]:
    """Let an error of exhausted GPU memory say what to lower."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise torch.OutOfMemoryError(f"The GPU's memory is exhausted. {remedy} ({error})") from error
