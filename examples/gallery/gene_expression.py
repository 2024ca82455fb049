"""
A gene-expression table
=======================

This table has many more columns than rows. ``SumoNet`` reduces such a table to principal components and gives most
weight to its simplest components, because the data contain few events.
"""

# %%
# The data
# --------
# There are 240 patients and 1,500 genes in correlated groups, similar to pathways. Two of the groups affect survival.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.decomposition import PCA

from sumosurv import CoxPH, KaplanMeier, SumoNet, Surv, plots, scores

rng = np.random.default_rng(5)
n, pathways, size = 240, 15, 100
activity = rng.normal(size=(n, pathways))
genes = np.repeat(activity, size, axis=1) * rng.uniform(0.3, 1.0, pathways * size) + rng.normal(
    size=(n, pathways * size)
)
X = pd.DataFrame(genes.astype("float32"), columns=[f"gene_{i}" for i in range(pathways * size)])
log_risk = 0.9 * activity[:, 0] - 0.7 * activity[:, 1]
life = 50 * rng.weibull(1.3, n) * np.exp(-log_risk / 1.3)
end = rng.uniform(20, 120, n)
y = Surv.from_arrays(life <= end, np.minimum(life, end))
train, test = np.arange(0, 160), np.arange(160, n)
print(f"{X.shape[0]} rows, {X.shape[1]} columns, {int(y['event'].sum())} events")

# %%
# Fit
# ---
# A Cox model of 1,500 genes has no solution without a penalty. A common alternative is to fit it to principal
# components.

components = PCA(10).fit(X.iloc[train])
reduced = components.transform(X)
sumo = SumoNet(random_state=0).fit(X.iloc[train], y[train])
models = {
    "Kaplan-Meier": KaplanMeier().fit(X.iloc[train], y[train]).predict_distribution(X.iloc[test]),
    "Cox, 10 components": CoxPH().fit(reduced[train], y[train]).predict_distribution(reduced[test]),
    "SumoNet": sumo.predict_distribution(X.iloc[test]),
}
weights = sumo.components_.set_index("component")["weight"].sort_values(ascending=False)
print(weights.round(2))

# %%
# Held-out patients
# -----------------
# With eighty test patients, the intervals are wide.

print(
    scores.evaluate(
        models, None, y[test], scores=["log_likelihood", "integrated_brier", "concordance_td", "d_calibration"]
    )
)
plots.plot_risk_groups(models["SumoNet"], y[test], groups=2, unit="months")
plt.show()
