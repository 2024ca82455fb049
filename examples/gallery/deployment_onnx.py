"""
Deployment with ONNX
====================

Export a model to an ONNX file and run it with onnxruntime alone. The file takes raw columns and returns survival
curves, without this library, torch or scikit-learn. The same file runs in JavaScript, C++, C#, Java and Rust.
"""

# %%
# A model
# -------
# The covariates are numbers with missing values and a category.

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from sumosurv import SumoNet, Surv
from sumosurv.export import export_onnx

rng = np.random.default_rng(0)
n = 800
X = pd.DataFrame(
    {
        "age": rng.normal(60, 12, n).round(),
        "pressure": np.where(rng.random(n) < 0.15, np.nan, rng.normal(130, 18, n).round()),
        "ward": rng.choice(["A", "B", "C"], n, p=[0.5, 0.3, 0.2]),
    }
)
log_risk = 0.05 * (X["age"] - 60) + 0.7 * (X["ward"] == "C")
days = 200 * rng.weibull(1.3, n) * np.exp(-log_risk / 1.3)
end = rng.uniform(30, 400, n)
y = Surv.from_arrays(days <= end, np.minimum(days, end))
model = SumoNet(max_epochs=20, random_state=0).fit(X[:600], y[:600])

# %%
# Export
# ------
# The file includes scaling, the treatment of missing values and categories, and all networks with their weights. In
# single precision it is half as large.

folder = Path(tempfile.mkdtemp())
export_onnx(model, folder / "model.onnx")
export_onnx(model, folder / "small.onnx", precision="single")
for path in sorted(folder.glob("*.onnx")):
    print(f"{path.name}: {path.stat().st_size / 1024:,.0f} KiB")

# %%
# Run it elsewhere
# ----------------
# The code below does not use sumosurv. The metadata list the names of the columns in order.

import json

import onnxruntime

session = onnxruntime.InferenceSession(folder / "model.onnx")
about = json.loads(session.get_modelmeta().custom_metadata_map["sumosurv"])
print("numbers:", about["numbers"])
print("categories:", [column["name"] for column in about["categories"]])
print("follow-up ended at", round(about["last_time"], 1))

# %%
# Check the predictions
# ---------------------
# Compare with the library on 200 new rows.

times = np.linspace(0, about["last_time"], 101)
new = X[600:]
given = {
    "numbers": new[about["numbers"]].to_numpy(dtype=np.float64),
    "categories": new[["ward"]].to_numpy(dtype=object),
    "times": times,
}
ours = model.predict_survival_function(new, times)
for name in ("model.onnx", "small.onnx"):
    found = onnxruntime.InferenceSession(folder / name).run(["survival"], given)[0]
    print(f"{name}: largest difference in S(t|x) {np.abs(found - ours).max():.1e}")

# %%
# Two patients
# ------------
# The blood pressure of the second patient is unknown. The page on export in the user guide shows the same in JavaScript
# and with ``torch.export``.

patients = {
    "numbers": np.array([[50.0, 120.0], [75.0, np.nan]]),
    "categories": np.array([["A"], ["C"]], dtype=object),
    "times": times,
}
survival, density, risk = session.run(["survival", "density", "risk"], patients)
print("risk scores:", risk.round(3))

import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for curve, slope, label in zip(survival, density, ["50, ward A", "75, ward C, pressure unknown"]):
    axes[0].plot(times, curve, lw=2, label=label)
    axes[1].plot(times, slope, lw=2)
axes[0].set(xlabel="time (days)", ylabel="S(t|x) from onnxruntime", ylim=(0, 1.02))
axes[1].set(xlabel="time (days)", ylabel="f(t|x)")
axes[1].set_ylim(0)
axes[0].legend(frameon=False)
plt.show()
