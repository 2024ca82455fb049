"""Direct readings of the definitions, one pair or one row at a time: slow, short, independent of the library."""

import numpy as np


def concordance_td(curve, event, time, method="harrell", entry=None, weight=None):
    """``curve(t)`` gives S of every subject at t; a subject is compared with events after its entry."""
    entry = np.zeros(len(time)) if entry is None else entry
    weight = np.ones(len(time)) if weight is None else weight
    top = bottom = 0.0
    for i in range(len(time)):
        s = curve(time[i])
        for j in range(len(time)):
            if i == j or (entry[j] > 0 and entry[j] >= time[i]):
                continue
            earlier, tied = time[i] < time[j], time[i] == time[j]
            half = 0.5 * (s[i] == s[j])
            one = weight[i] * weight[j]
            if method != "adj_antolini":
                comparable = one * (event[i] and (earlier or (tied and not event[j])))
                bottom += comparable
                top += comparable * ((s[i] < s[j]) + (half if method == "harrell" else 0.0))
                continue
            if earlier and event[i]:
                bottom, top = bottom + one, top + one * ((s[i] < s[j]) + half)
            elif tied and event[i] and event[j]:
                bottom, top = bottom + one, top + one * (1.0 if s[i] == s[j] else 0.5)
            elif tied and event[i]:
                bottom, top = bottom + one, top + one * ((s[i] < s[j]) + half)
            elif tied and event[j]:
                bottom, top = bottom + one, top + one * ((s[i] > s[j]) + half)
    return top / bottom if bottom else np.nan


def concordance_risk(risk, event, time, weight=None):
    top = bottom = 0.0
    for i in range(len(time)):
        for j in range(len(time)):
            if i != j and event[i] and (time[i] < time[j] or (time[i] == time[j] and not event[j])):
                w = 1.0 if weight is None else weight[i]
                bottom += w
                top += w * ((risk[i] > risk[j]) + 0.5 * (risk[i] == risk[j]))
    return top / bottom if bottom else np.nan


def ipcw(loss_event, loss_alive, event, time, t, g_before, g_at):
    """One value per subject: loss_event / G(z-) or loss_alive / G(t)."""
    score = np.zeros(len(time))
    for i in range(len(time)):
        if time[i] <= t and event[i]:
            score[i] = loss_event[i] / g_before[i]
        elif time[i] > t:
            score[i] = loss_alive[i] / g_at[i]
    return score


def d_calibration(u, event, bins):
    return d_calibration_rows(u, event, bins).mean(axis=0)


def d_calibration_rows(u, event, bins):
    """How each row is spread over the bins, (n, bins)."""
    shares = np.zeros((len(u), bins))
    for i, (ui, di) in enumerate(zip(u, event)):
        for b in range(bins):
            low, high = b / bins, (b + 1) / bins
            if di:
                shares[i, b] = low <= ui < high or (b == bins - 1 and ui == 1.0)
            elif ui <= low:
                shares[i, b] = (high - low) / (1 - ui)
            elif ui < high:
                shares[i, b] = (high - ui) / (1 - ui)
    return shares


def interpolated_density(t, times, survival, k):
    """The paper's equation, the ends of the table as `Tabulated` defines them."""
    last = len(times) - 1
    i = max(j for j in range(len(times)) if times[j] <= t)
    right = min(max(i + k, 1), last)
    left = min(max(i - k + 1, 0), right - 1)
    return -(survival[right] - survival[left]) / (times[right] - times[left])
