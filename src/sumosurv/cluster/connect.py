"""The cluster: its address, who may talk to it, and when it is worth asking."""

from __future__ import annotations

import ipaddress
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Cluster", "connected"]

# Less work than this is done where the rows are: it is about where two workers were even with one process, the time to
# connect and to start workers counted (benchmarks/cluster.py; the figures are in docs/large_data.md).
SMALLEST_PASSES = 5_000_000  # rows × networks (or trials) × epochs of a fit or a search
SMALLEST_ROWS = 500_000  # of a prediction


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster and how it is used.

    Parameters
    ----------
    address : str, optional
        ``HOST:PORT`` of the head node, "auto" for the cluster that runs on this machine, "local" for a cluster of
        this process alone. None is $RAY_ADDRESS, else "auto".
    workers : int, optional
        Processes that work at the same time; by default one for each GPU, else for each CPU but one.
    smallest : int, optional
        Work below which the cluster is not asked: passes over rows (rows × networks × epochs) of fits and searches,
        rows of predictions. By default 5 million and 500,000; 0 always asks.
    ship : bool
        Send this package to the workers. Otherwise it must be installed there, in the same version.
    """

    address: str | None = None
    workers: int | None = None
    smallest: int | None = None
    ship: bool = False

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers is a whole number of at least 1; got {self.workers!r}.")

    def too_small(self, *, passes: int = 0, rows: int = 0) -> bool:
        """Whether so much work is done sooner without the cluster; says so in a warning."""
        least = (SMALLEST_PASSES if passes else SMALLEST_ROWS) if self.smallest is None else self.smallest
        if (passes or rows) >= least:
            return False
        what = f"{passes:,} passes over rows (rows x networks x epochs)" if passes else f"{rows:,} rows"
        warnings.warn(
            f"This is done here and not by Ray: {what} are fewer than {least:,}, below which a cluster costs more time "
            "than it saves.",
            stacklevel=2,
        )
        return True

    def workers_of(self, ray: Any, *, gpu: bool) -> int:
        """How many processes work at the same time: those asked for, or what the cluster has room for."""
        if self.workers is not None:
            return self.workers
        resources = ray.cluster_resources()
        return max(1, int(resources.get("GPU", 0)) if gpu else int(resources.get("CPU", 1)) - 1)


@contextmanager
def connected(cluster: Cluster) -> Iterator[Any]:
    """Ray, connected to a cluster; left at the end if it was joined here."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing is sent to anybody
    try:
        import ray
    except ModuleNotFoundError:
        raise ModuleNotFoundError("A cluster needs Ray: pip install 'sumosurv[ray]'.") from None
    if ray.is_initialized():
        yield ray
        return
    address = cluster.address or os.environ.get("RAY_ADDRESS") or "auto"
    _check_safe(address)
    runtime: dict[str, Any] = {"env_vars": {"RAY_USAGE_STATS_ENABLED": "0"}}
    if cluster.ship:
        runtime["py_modules"] = [str(Path(__file__).parents[1])]
    options: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address=address, runtime_env=runtime, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConnectionError(f"No Ray cluster answers at {address}: {error}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_safe(address: str) -> None:
    """Whoever reaches a cluster can run code on it: over a network only with Ray's tokens."""
    host = address.removeprefix("ray://").rpartition(":")[0].strip("[]")
    if address in ("auto", "local") or host == "localhost":
        return
    try:
        near = ipaddress.ip_address(host).is_loopback
    except ValueError:
        near = False
    if not near and os.environ.get("RAY_AUTH_MODE") != "token":
        raise ValueError(
            f"The cluster at {address} is not on this machine and RAY_AUTH_MODE is not 'token': anyone who reaches it "
            "could run code on it; start it, and this program, with RAY_AUTH_MODE=token (docs/large_data.md)."
        )
