"""
Sequences with a recurrent network
==================================

Each subject has a series of measurements, and risk depends on how they change. A GRU reads the series and passes its
last state to SuMo-net.
"""

# %%
# The data
# --------
# Two signals are measured weekly for twelve weeks. Risk grows with the trend of the first signal, which no single week
# shows.

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from sumosurv import CoxPH, SumoNet, Surv, plots, scores

plt.rcParams["axes.prop_cycle"] = plt.cycler(color=["#0072B2", "#D55E00", "#009E73"])
plt.rcParams["axes.spines.top"] = plt.rcParams["axes.spines.right"] = False

rng = np.random.default_rng(4)
n, weeks = 800, 12
level, trend = rng.normal(size=n), rng.normal(size=n)
week = np.linspace(-1, 1, weeks)
first = level[:, None] + trend[:, None] * week + 0.4 * rng.normal(size=(n, weeks))
second = rng.normal(size=(n, weeks))
series = np.stack([first, second], axis=2).astype("float32")  # (rows, weeks, signals)
life = 10 * np.exp(-0.8 * trend) * rng.weibull(1.5, n)
end = rng.uniform(4, 24, n)
y = Surv.from_arrays(life <= end, np.minimum(life, end))
train, test = np.arange(0, 550), np.arange(550, n)


# %%
# The encoder
# -----------
# Any module that maps (rows, weeks, signals) to (rows, width) can be used, such as a transformer.


class LastState(nn.Module):
    """The last hidden state of a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(input_size=2, hidden_size=12, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """From (rows, weeks, signals) to (rows, 12)."""
        return self.gru(x)[1][0]


model = SumoNet(encoder=LastState(), n_members=2, max_epochs=15, learning_rate=0.01, random_state=0)
model.fit(series[train], y[train])

# %%
# Compare with a Cox model of the mean of each signal, and with one that is given the trend.

means = series.mean(axis=1)
slopes = ((series - means[:, None]) * week[None, :, None]).sum(axis=1)
models = {
    "Cox, means": CoxPH(alpha=0.1).fit(means[train], y[train]).predict_distribution(means[test]),
    "Cox, trends": CoxPH(alpha=0.1).fit(slopes[train], y[train]).predict_distribution(slopes[test]),
    "SumoNet, GRU": model.predict_distribution(series[test]),
}
print(scores.evaluate(models, None, y[test], scores=["log_likelihood", "concordance_td", "integrated_brier"]))

# %%
# Three subjects
# --------------

shown = test[np.argsort(trend[test])[[10, len(test) // 2, -10]]]
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for row in shown:
    left.plot(range(1, weeks + 1), series[row, :, 0])
left.set(xlabel="week", ylabel="first signal", title="what the network reads")
plots.plot_survival(
    model.predict_distribution(series[shown]), labels=["falls", "stays", "rises"], unit="months", horizon=23, ax=right
)
right.set_title("what it predicts")
plt.show()
