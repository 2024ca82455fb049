"""
Churn with competing reasons
============================

Customers leave because they cancel or because a payment fails. These are competing risks: once one of them has
happened, the other can no longer happen. The cumulative incidence of a reason is the probability of leaving for that
reason by time t.
"""

# %%
# The data
# --------
# The event is 0 for current customers, 1 for a cancellation and 2 for a failed payment.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sumosurv import AalenJohansen, SumoNet, Surv, kaplan_meier, plots, scores

rng = np.random.default_rng(1)
n = 1200
X = pd.DataFrame(
    {
        "plan": pd.Categorical(rng.choice(["monthly", "yearly"], n, p=[0.7, 0.3])),
        "price": rng.gamma(6, 2.0, n).round(2),
        "card_age": rng.uniform(0, 5, n).round(1),
        "logins": rng.poisson(8, n),
    }
)
monthly = (X["plan"] == "monthly").to_numpy()
cancel = 24 * rng.weibull(0.9, n) * np.exp(-0.7 * monthly + 0.09 * (X["logins"] - 8) - 0.04 * (X["price"] - 12))
failed = 40 * rng.weibull(2.0, n) * np.exp(-0.35 * (X["card_age"] - 2.5))
leaves = np.minimum(cancel, failed)
observed = rng.uniform(6, 36, n)
cause = np.select([leaves > observed, cancel < failed], [0, 1], 2)
y = Surv.from_arrays(cause, np.minimum(leaves, observed))
train, test = np.arange(0, 800), np.arange(800, n)
print(pd.Series(cause).map({0: "still there", 1: "cancelled", 2: "payment failed"}).value_counts())

# %%
# Fit, and compare with Aalen-Johansen
# ------------------------------------

model = SumoNet(n_members=4, max_epochs=30, random_state=0).fit(X.iloc[train], y[train])
simple = AalenJohansen().fit(X.iloc[train], y[train])
models = {"Aalen-Johansen": simple, "SumoNet": model}
chosen = ["log_likelihood", "brier", "cumulative_dynamic_auc", "group_calibration"]
print(scores.evaluate(models, X.iloc[test], y[test], scores=chosen, times=[12.0]))

# %%
# The Aalen-Johansen estimate predicts the same incidence for everyone, so it does not discriminate. Because it is right
# on average, it is nevertheless well calibrated, even better than four small networks fitted to 800 customers.
# Calibration checks a model; it does not rank models.

# %%
# Why not censor the other reason?
# --------------------------------
# One minus Kaplan-Meier, with failed payments counted as censored, estimates the incidence in a world in which payments
# never fail. It overestimates the incidence in the real world.

naive = 1 - kaplan_meier(Surv.from_arrays(cause == 1, y["time"])).survival([12.0, 24.0, 36.0])[0]
right = simple.predict_cumulative_incidence(X.iloc[:1], [12.0, 24.0, 36.0])[0, :, 0]
print(pd.DataFrame({"months": [12, 24, 36], "naive": naive.round(3), "Aalen-Johansen": right.round(3)}))

# %%
# Two customers
# -------------
# Survival and the incidences of both reasons add up to one at every time.

customers = pd.DataFrame(
    {
        "plan": pd.Categorical(["monthly", "yearly"]),
        "price": [15.0, 15.0],
        "card_age": [1.0, 4.5],
        "logins": [3, 12],
    }
)
d = model.predict_distribution(customers)
print("months of the first two years lost to each reason:", d.restricted_time_lost(24.0).round(1).tolist())
figure, both = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for subject, ax in enumerate(both):
    plots.plot_incidences(d, subject=subject, labels=["cancels", "payment fails"], unit="months", horizon=30, ax=ax)
    ax.set_title(f"{customers['plan'][subject]} plan, {customers['logins'][subject]} logins")
plt.show()
