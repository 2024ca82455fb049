"""
A right-censored study, from a CSV file to a report
===================================================

A follow-up study with right censoring, categories and missing values: read the file, fit a model, plot curves, evaluate
the model on held-out patients, save it, and write a report.
"""

# %%
# The file
# --------
# First write a CSV file like that of a typical study: 900 patients with age, sex, stage and a biomarker that is missing
# for one patient in five.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from sumosurv import CoxPH, KaplanMeier, SumoNet, Surv, load, plots, scores
from sumosurv.report import make_report

rng = np.random.default_rng(0)
n = 900
age = rng.normal(62, 10, n).round()
stage = rng.choice(["I", "II", "III"], n, p=[0.5, 0.3, 0.2])
marker = rng.lognormal(0.0, 0.6, n)
log_risk = 0.04 * (age - 62) + 0.8 * (stage == "III") + 0.9 * np.tanh(2 * (marker - 1.2))
death = 70 * rng.weibull(1.4, n) * np.exp(-log_risk / 1.4)
end = rng.uniform(20, 96, n)
folder = Path(tempfile.mkdtemp())
pd.DataFrame(
    {
        "age": age,
        "sex": rng.choice(["female", "male"], n),
        "stage": stage,
        "marker": np.where(rng.random(n) < 0.2, np.nan, marker.round(2)),
        "months": np.minimum(death, end).round(1) + 0.1,
        "died": (death <= end).astype(int),
    }
).to_csv(folder / "study.csv", index=False)

# %%
# Read and split
# --------------
# Text columns become categories, and missing values need no imputation.

study = pd.read_csv(folder / "study.csv")
y = Surv.from_columns(study, event="died", time="months")
X = study.drop(columns=["died", "months"])
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y["event"])
print(study.head())
print(f"{y['event'].mean():.0%} died; follow-up up to {y['time'].max():.0f} months")

# %%
# Fit
# ---
# The model stacks several components, weighted by the likelihood of held-out patients.

model = SumoNet(random_state=0).fit(X_train, y_train)
print(model.components_.round(2))

# %%
# Curves of single patients
# -------------------------
# Beyond the longest follow-up, the curves are extrapolated; this part is shaded.

patients = pd.DataFrame(
    {
        "age": [55, 70, 70],
        "sex": ["female", "female", "male"],
        "stage": ["I", "II", "III"],
        "marker": [0.7, np.nan, 2.0],
    }
)
labels = ["55, stage I, marker 0.7", "70, stage II, marker unknown", "70, stage III, marker 2.0"]
plots.plot_survival(model.predict_distribution(patients), labels=labels, unit="months", horizon=120)
plt.show()
print("alive after five years:", model.predict_survival_function(patients, [60])[:, 0].round(2))
print("expected months of the first five years:", model.predict_restricted_mean(patients, 60).round(1))

# %%
# Evaluate
# --------
# Compare with Kaplan-Meier, which ignores the covariates, and with a Cox model, on the same test patients. Differences
# have paired bootstrap intervals. In the Cox model, a missing marker is replaced by the mean, with an indicator.

cox = CoxPH(alpha=0.1).fit(X_train, y_train)
models = {"Kaplan-Meier": KaplanMeier().fit(X_train, y_train), "Cox": cox, "SumoNet": model}
print(scores.evaluate(models, X_test, y_test, scores=["log_likelihood", "integrated_brier", "concordance_td"]))

# %%
# Save
# ----
# A model file contains numbers but no code.

model.save(folder / "study.sumo")
again = load(folder / "study.sumo")
print("same predictions:", bool(np.allclose(again.predict_median(X_test), model.predict_median(X_test))))

# %%
# Report
# ------
# The report is one HTML file: data, performance compared with Kaplan-Meier and the Cox model, risk groups, importance
# of the covariates, example patients and limitations. Here ``n_bootstrap`` and ``max_rows`` are small to save time;
# omit them for a real report.

report = make_report(
    model, X_test, y_test, against={"Cox": cox}, unit="months", times=[12, 36, 60], n_bootstrap=10, max_rows=60
)
report.save(folder / "report.html")
for section in report.sections:
    for sentence in section.summary:
        print("-", sentence)

# %%
# The same from the shell::
#
#     sumosurv report study.sumo test.csv --time months --event died --against cox.sumo --unit months --out report.html

# %%
# Calibration
# -----------
# Predicted survival against Kaplan-Meier, in four groups of predicted risk.

predicted = model.predict_distribution(X_test)
print(f"p-value of D-calibration: {scores.d_calibration(predicted, y_test).p_value:.2f}")
plots.plot_risk_groups(predicted, y_test, groups=4, unit="months")
plt.show()
