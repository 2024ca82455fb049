"""
Cox regression for a publication
================================

From raw data to the table and the figure of a paper: a Cox regression of relapse-free survival in the German breast
cancer study (GBSG2), specified by a formula.
"""

# %%
# The table has one row per patient. Times are in days; we report years.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sumosurv import CoxPH, Surv, compare_nested, datasets

X, y = datasets.load("gbsg2")
data = X.assign(years=y["time"] / 365.25, relapse=y["event"])
print(data.head())

# %%
# In the model, age has a nonlinear effect, nodes and the receptor enter on a log scale, and each tumour grade has its
# own baseline hazard.

terms = "hormone_therapy + log(positive_nodes) + log(progesterone + 1) + strata(tumour_grade)"
linear = CoxPH.from_formula(f"Surv(years, relapse) ~ age + {terms}", data)
model = CoxPH.from_formula(f"Surv(years, relapse) ~ ns(age, df=3) + {terms}", data)
print(model.summary())

# %%
# Reviewers ask for two checks: whether the spline is needed, and whether hazards are proportional.

print(compare_nested(linear, model))
print(model.test_proportionality(data, Surv.from_columns(data, "relapse", "years")))

# %%
# The table is written in LaTeX.

print(model.summary().to_latex())

# %%
# The figure shows the log hazard ratio of age, and the survival of a patient with and without hormone therapy, with
# confidence limits. The patient has median covariates and a tumour of grade II.

patient = data[["age", "positive_nodes", "progesterone"]].median()
both = pd.DataFrame([patient, patient]).assign(hormone_therapy=["no", "yes"], tumour_grade="II")
times = np.linspace(0, 6, 200)
survival, (lower, upper) = model.predict_survival_function(both, times), model.predict_survival_band(both, times)
ages = both.iloc[[0] * 40].assign(age=np.linspace(25, 75, 40))

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.plot(ages["age"], model.log_risk(ages) - model.log_risk(ages.assign(age=patient["age"])))
left.set(xlabel="age, years", ylabel="log hazard ratio, compared with the median age")
for i, label in enumerate(["no hormone therapy", "hormone therapy"]):
    right.step(times, survival[i], where="post", label=label)
    right.fill_between(times, lower[i], upper[i], step="post", alpha=0.2)
right.set(xlabel="years", ylabel="relapse-free survival", ylim=(0, 1))
right.legend()
plt.show()
