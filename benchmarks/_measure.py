"""What the speed benchmarks share: timing, the limits of the machine, tables and records."""

import argparse
import os
import platform
import resource
import time
from itertools import pairwise
from pathlib import Path

import torch
from _record import make_record, save_record

TIMES = 100
KKBOX_ROWS, KKBOX_COLUMNS = 529_349, 15  # of its test fold


def arguments(description):
    """The options that all speed benchmarks have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of ours and of every peer")
    parser.add_argument("--quick", action="store_true", help="fewer rows and repeats")
    parser.add_argument("--out", type=Path, default=None, help="folder for the JSON record")
    return parser


def start(options):
    """Set the threads; say where this runs."""
    torch.set_num_threads(options.threads)
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("--device cuda was asked for and torch sees no CUDA device")
    print(f"{machine(options.device)}; {options.threads} CPU thread(s); torch {torch.__version__}\n")


def machine(device):
    """The processor in words."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    names = [line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores"


def _lines(path):
    return Path(path).read_text().splitlines() if Path(path).is_file() else []


def seconds(function, device="cpu", repeats=7, at_most=None):
    """The shortest of several runs after one to warm up: other work on the machine can only add to it.

    Short runs are repeated for a second at least, on CUDA for a quarter of one.
    """
    at_most, at_least = at_most or (4.0 if device == "cuda" else 20.0), 0.25 if device == "cuda" else 1.0
    begun = time.perf_counter()
    found = [_once(function, device)]
    if device == "cuda" or found[0] < 0.5 * at_most:  # the first run also paid for warming up, and for compiling
        found = [_once(function, device)]
    while (spent := time.perf_counter() - begun) < at_most and (len(found) < repeats or spent < at_least):
        found.append(_once(function, device))
    return min(found)


def _once(function, device):
    if device == "cuda":
        torch.cuda.synchronize()
    begun = time.perf_counter()
    function()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begun


class Limits:
    """What the machine can do at most, measured: FLOP/s of a product, special functions, bytes to and from memory."""

    def __init__(self, device, dtype):
        self.device, self.dtype = device, dtype
        side = 8192 if device == "cuda" else 2048
        a = torch.randn(side, side, dtype=dtype, device=device)
        self.flops = 2.0 * side**3 / seconds(lambda: a @ a, device, repeats=5, at_most=5.0)
        big = torch.empty((1 << 28) // a.element_size(), dtype=dtype, device=device)
        target = torch.empty_like(big)
        self.bandwidth = 2.0 * (1 << 28) / seconds(lambda: target.copy_(big), device, repeats=5, at_most=5.0)
        self.special = self._special()

    def _special(self):
        """Per second, in cache: divisions, logistic functions, tanh. On CUDA from 16 per multiprocessor and clock."""
        if self.device == "cuda":
            properties = torch.cuda.get_device_properties(0)
            clock = getattr(properties, "clock_rate", 0) * 1e3 or 1.98e9
            rate = 16.0 * properties.multi_processor_count * clock
            return {"reciprocal": rate, "sigmoid": rate / 2.0, "tanh": rate / 2.0}
        x = torch.rand(1 << 14, dtype=self.dtype) + 0.5
        y = torch.empty_like(x)
        rates = {}
        for name in ("reciprocal", "sigmoid", "tanh"):
            function = getattr(torch, name)
            rates[name] = 200 * len(x) / seconds(lambda f=function: [f(x, out=y) for _ in range(200)], repeats=9)
        return rates

    def floor(self, *, flops, moved, calls=None):
        """Seconds that this work takes at least, and what bounds it: FLOP/s, special functions or memory."""
        parts = {"FLOP/s": flops / self.flops, "memory": moved / self.bandwidth}
        for name, count in (calls or {}).items():
            parts[name] = count / self.special[name]
        bound = max(parts, key=parts.get)
        return parts[bound], bound

    def describe(self):
        """For the record."""
        return {
            "dtype": str(self.dtype).removeprefix("torch."),
            "matmul_flops_per_s": self.flops,
            "copy_bytes_per_s": self.bandwidth,
            "special_per_s": self.special,
        }


def network_floor(limits, cells, widths, separable, slope=False):
    """The least time for a mixed network on so many cells."""
    itemsize = torch.finfo(limits.dtype).bits // 8
    products = sum(2 * a * b for a, b in pairwise(widths))
    per_cell = 5 * widths[0] + products + 2 * widths[-1]
    special = {"reciprocal" if separable and len(widths) == 1 else "sigmoid": cells * sum(widths)}
    return limits.floor(flops=cells * per_cell * (2 if slope else 1), moved=cells * itemsize, calls=special)


def peak_memory(device):
    """Largest resident size of this process so far, and of the device, in bytes."""
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"host_bytes": host, "device_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else 0}


def show(rows, columns):
    """Print a table."""
    texts = [[_text(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(column), *(len(line[i]) for line in texts)) for i, column in enumerate(columns)]
    print("  ".join(column.ljust(width) for column, width in zip(columns, widths)))
    for line in texts:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths)))
    print(flush=True)


def _text(value):
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def keep(options, name, configuration, results):
    """Write the record of a run, if a folder was given: performance_<name>_<device>.json."""
    if options.out is None:
        return
    where = {"device": options.device, "machine": machine(options.device), "threads": options.threads}
    record = make_record(f"performance_{name}_{options.device}", where | configuration, results)
    print(save_record(record, options.out))
