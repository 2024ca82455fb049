"""Compares the CUDA kernel with the plain network; run by `test_fused.py` in a process of its own.

With TRITON_INTERPRET=1 in the environment the kernel runs on the CPU, in Triton's interpreter, which must be known
before Triton is first imported. Prints the largest difference of each case as JSON.
"""

import json
import sys

import numpy as np
import torch

import small_networks
from sumosurv.networks import fused_triton
from sumosurv.networks.fused import fused_curves

QUANTITIES = ("log_survival", "survival", "density", "log_both")
NETWORKS = {
    "one layer, no gates": {"widths": (32,), "proper": False, "kind": "linear"},
    "one narrow layer, no gates": {"widths": (6,), "proper": False, "kind": "linear"},
    "one layer, two features": {"widths": (16,), "proper": False, "kind": "log"},
    "two layers, no gates": {"widths": (16, 16), "proper": False, "kind": "linear"},
    "one layer": {"widths": (16,), "kind": "marginal"},
    "two layers": {"widths": (32, 32), "kind": "marginal"},
    "two unequal layers": {"widths": (16, 24), "kind": "log"},
    "three layers": {"widths": (64, 64, 64), "kind": "marginal"},
}


def differences(device: str) -> dict[str, float]:
    """|kernel - plain network| of every network, quantity and kind of grid, relative to the plain one (1 at least)."""
    found = {}
    for name, options in NETWORKS.items():
        net = small_networks.network((0, 1), noise=0.2, encoder_widths=(8,), **options).requires_grad_(False)
        distribution = net.distribution(small_networks.inputs(5))
        shared = torch.linspace(0.0, 1.0, 11, dtype=torch.float64)[None]
        own = torch.from_numpy(np.random.default_rng(0).random((5, 3)))
        for k, curve in enumerate(fused_curves(net.mixed)):
            part = small_networks.networks_of(distribution)[k]
            start = part._log_start()
            for dtype in (torch.float32, torch.float64):
                own_curve = _on(curve.to(dtype), device)
                begin = None if start is None else start.to(device, dtype)
                for grid, t in (("shared", shared), ("own", own)):
                    for quantity in QUANTITIES:
                        wanted = part._tiles(quantity, t, start)
                        code, times = part.code.to(device, dtype), t.to(device, dtype)
                        got = fused_triton.evaluate(own_curve, quantity, code, times, begin)
                        scale = [w.abs().clamp_min(1.0) for w in wanted]
                        found[f"{name}, member {k}, {grid} times, {quantity}, {str(dtype)[6:]}"] = max(
                            float(((g.cpu().double() - w).abs() / s).max()) for g, w, s in zip(got, wanted, scale)
                        )
    return found


def _on(curve, device):
    for name in ("time_weight", "out_weight", "out_bias"):
        setattr(curve, name, getattr(curve, name).to(device))
    curve.layers = [
        type(layer)(layer.weight.to(device), layer.bias.to(device), layer.residual) for layer in curve.layers
    ]
    curve.times._features.to(device)
    curve.times._kept.clear()
    return curve


if __name__ == "__main__":
    print(json.dumps(differences(sys.argv[1])))
