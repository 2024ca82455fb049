"""
Comparing models
================

Which of several models is best, and by how much? Fit each model in every fold of a repeated cross-validation, compare
log-likelihoods by paired differences, and plot the Brier score over time.
"""

# %%
# The data
# --------
# The hazards cross: the treatment is harmful at first and beneficial later, which a Cox model cannot represent.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sumosurv import CoxPH, KaplanMeier, LogNormalNet, SumoNet, Surv, plots, scores

plt.rcParams["axes.prop_cycle"] = plt.cycler(color=["#0072B2", "#D55E00", "#009E73"])
plt.rcParams["axes.spines.top"] = plt.rcParams["axes.spines.right"] = False

rng = np.random.default_rng(6)
n = 900
treated = rng.random(n) < 0.5
age = rng.normal(0, 1, n)
shape = np.where(treated, 0.7, 1.8)
life = np.where(treated, 9.0, 6.0) * np.exp(-0.3 * age) * rng.exponential(size=n) ** (1 / shape)
end = rng.uniform(3, 12, n)
X = pd.DataFrame({"treated": treated.astype(float), "age": age})
y = Surv.from_arrays(life <= end, np.minimum(life, end))

# %%
# Cross-validation
# ----------------
# The first model is the reference. The log-likelihood is a proper score: in expectation, the true
# distribution scores best.

models = {
    "Cox": CoxPH(),
    "Kaplan-Meier": KaplanMeier(),
    "log-normal": LogNormalNet(n_members=2, max_epochs=20, random_state=0),
    "SumoNet": SumoNet(n_members=2, max_epochs=20, random_state=0),
}
chosen = ["log_likelihood", "integrated_brier", "concordance_td"]
result = scores.cross_evaluate(models, X, y, cv=5, scores=chosen, verbose=False)
print(result)

# %%
# Over time
# ---------
# Bands are 95 % bootstrap intervals at each time.

train, test = np.arange(0, 600), np.arange(600, n)
fitted = {name: model.fit(X.iloc[train], y[train]) for name, model in models.items()}
curves = {name: fitted[name].predict_distribution(X.iloc[test]) for name in ("Kaplan-Meier", "Cox", "SumoNet")}
plots.plot_score(curves, y[test], times=np.linspace(0.5, 10, 40), unit="years")
plt.show()

# %%
# The difference arises because the Cox curves of the two arms cannot cross.

arms = pd.DataFrame({"treated": [0.0, 1.0], "age": [0.0, 0.0]})
figure, both = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for ax, name in zip(both, ("Cox", "SumoNet")):
    times = np.linspace(0, 10, 200)
    for curve, label in zip(fitted[name].predict_survival_function(arms, times), ("control", "treated")):
        ax.plot(times, curve, label=label)
    ax.set(title=name, xlabel="years", xlim=(0, 10), ylim=(0, 1.02))
both[0].set_ylabel("survival")
both[0].legend(frameon=False)
plt.show()
