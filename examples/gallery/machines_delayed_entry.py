"""
Machines with delayed entry
===========================

A plant began to keep records in 2020, but most of its machines are older. Machines that
failed before 2020 are not in the data, so every machine in the data survived to its age at entry (left truncation).
Ignoring this makes machines look far more durable than they are.
"""

# %%
# The data
# --------
# Time is the age of a machine in years; ``entry`` is its age when records began (0 for machines bought later).

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sumosurv import SumoNet, Surv, kaplan_meier, plots
from sumosurv.distributions import Weibull

plt.rcParams["axes.prop_cycle"] = plt.cycler(color=["#0072B2", "#D55E00", "#009E73"])
plt.rcParams["axes.spines.top"] = plt.rcParams["axes.spines.right"] = False

rng = np.random.default_rng(2)
n = 4000
load = rng.choice([0.6, 1.0, 1.4], n)
scale, shape = 9.0 / load, 2.2
life = scale * rng.weibull(shape, n)
bought = rng.uniform(-12, 5, n)  # years before or after the records began
entry = np.maximum(-bought, 0.0)
age_now = 5.0 - bought
recorded = life > entry
time = np.minimum(life, age_now)[recorded]
event = (life <= age_now)[recorded]
X = pd.DataFrame({"load": load[recorded]})
y = Surv.from_arrays(event, time, entry[recorded])
print(f"{recorded.sum()} of {n} machines are on record; {event.mean():.0%} of these failed")

# %%
# With and without the entry age
# ------------------------------

right = SumoNet(n_members=4, max_epochs=25, random_state=0).fit(X, y)
naive = SumoNet(n_members=4, max_epochs=25, random_state=0).fit(X, Surv.from_arrays(event, time))

machine = pd.DataFrame({"load": [1.0]})
ages = np.linspace(0, 15, 151)
ax = plt.subplots(figsize=(7, 4.5), layout="constrained")[1]
ax.plot(ages, Weibull([9.0], 2.2).survival(ages)[0], color="black", label="truth")
ax.plot(ages, right.predict_survival_function(machine, ages)[0], label="with entry ages")
ax.plot(ages, naive.predict_survival_function(machine, ages)[0], "--", label="entry ages ignored")
ax.set(
    xlim=(0, 15), xlabel="age, years", ylabel="share still running", title="A machine under normal load", ylim=(0, 1.02)
)
ax.legend(frameon=False)
plt.show()

# %%
# Kaplan-Meier also accepts entry ages.

print("share that runs for six years, over all machines on record")
print("  Kaplan-Meier with entry:   ", kaplan_meier(y).survival(6.0).round(2)[0])
print("  Kaplan-Meier without entry:", kaplan_meier(Surv.from_arrays(event, time)).survival(6.0).round(2)[0])

# %%
# Remaining life
# --------------
# For maintenance, the relevant quantity is the remaining life of a machine that is still running.

fleet = pd.DataFrame({"load": [0.6, 1.0, 1.4]})
running = right.predict_distribution(fleet).conditional(after=5.0)
print(pd.DataFrame({"load": fleet["load"], "median age at failure": running.median().round(1)}))
plots.plot_survival(running, labels=["light load", "normal load", "heavy load"], unit="years", horizon=15)
plt.show()
