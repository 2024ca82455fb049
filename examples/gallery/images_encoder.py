"""
Images with a custom encoder
============================

Any ``torch.nn.Module`` that maps a row to a vector can replace the covariate network. Here a small convolutional
network reads the 8 × 8 images of digits from scikit-learn, and the digit determines how long its subject survives.
"""

# %%
# The data
# --------
# The model sees the image but not the digit.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from torch import nn

from sumosurv import SumoNet, Surv, plots, scores

digits = load_digits()
rng = np.random.default_rng(3)
images = (digits.images[:, None] / 16).astype("float32")  # (rows, channels, height, width)
scale = 1 + 0.5 * digits.target
life = scale * rng.weibull(2.0, len(images))
end = rng.uniform(2, 9, len(images))
y = Surv.from_arrays(life <= end, np.minimum(life, end))
train, test = np.arange(0, 1300), np.arange(1300, len(images))

# %%
# Fit
# ---
# The module is copied for each network of the ensemble, and each copy has its own weights.

encoder = nn.Sequential(
    nn.Conv2d(1, 12, 3, padding=1),
    nn.SiLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(12, 24, 3, padding=1),
    nn.SiLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(24 * 4, 32),
)
model = SumoNet(encoder=encoder, n_members=2, max_epochs=25, learning_rate=0.005, random_state=0)
model.fit(images[train], y[train])
print(scores.evaluate(model, images[test], y[test], scores=["log_likelihood", "concordance_td", "d_calibration"]))

# %%
# Predictions
# -----------

medians = model.predict_median(images[test])
for digit in range(0, 10, 3):
    rows = digits.target[test] == digit
    truth = (1 + 0.5 * digit) * np.log(2) ** 0.5
    print(f"digit {digit}: mean predicted median {medians[rows].mean():.2f}, true median {truth:.2f}")

shown = [int(test[np.flatnonzero(digits.target[test] == digit)[0]]) for digit in (0, 4, 9)]
figure, axes = plt.subplot_mosaic(
    [["a", "curves"], ["b", "curves"], ["c", "curves"]], width_ratios=[1, 4], figsize=(8, 4.5), layout="constrained"
)
for name, row in zip("abc", shown):
    axes[name].imshow(digits.images[row], cmap="gray_r")
    axes[name].axis("off")
predicted = model.predict_distribution(images[shown])
plots.plot_survival(predicted, labels=["picture of 0", "of 4", "of 9"], unit="years", horizon=8, ax=axes["curves"])
plt.show()
