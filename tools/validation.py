"""Write docs/validation.md: statistics compared with R, and the coverage of intervals.

    python tools/validation.py

The results of R are those of tests/r/*.json (`make r-records`); the library's are computed now. The coverage is that of
results/coverage.json (`make coverage`), and paths of penalties are those of results/performance_cox_path_cpu.json.
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "r"))

from against_r import STATISTICS, largest_difference, records  # noqa: E402

HEAD = """# Validation: agreement with R, and coverage

## Agreement with R

Every statistic below is computed by R and by sumosurv from the same rows. The difference is the largest one over all
values of the entry, |sumosurv - R| / max(1, |R|). The tests require it to be below 1e-6.

*trial*, *visits*, *spells* and *wide* are simulated tables (`tests/r/data.R`) with ties, delayed entry, weights,
strata, clusters, competing risks, missing values, a column that separates the events, and more columns than rows.
Weights that are not whole numbers are scaled to a mean of one.

"""


def page() -> str:
    """The text of the page."""
    entries = records()
    versions: dict[str, str] = {}
    lines = ["| statistic | data | R script | difference |", "|---|---|---|---|"]
    for name, entry in entries.items():
        versions |= entry["versions"]
        gap = largest_difference(STATISTICS[name](), entry["values"])
        bound = "below 1e-9" if gap < 1e-9 else f"{gap:.0e}"
        lines.append(f"| {_text(entry['what'])} | {_text(entry['data'])} | `{entry['script']}` | {bound} |")
    used = ", ".join(f"{package} {_text(version)}" for package, version in versions.items())
    return HEAD + f"Versions: {used}.\n\n" + "\n".join(lines) + "\n\n" + paths() + coverage() + FOOT


def paths() -> str:
    """The section on paths of penalties, from the record of benchmarks/cox_path.py."""
    record = json.loads((ROOT / "results" / "performance_cox_path_cpu.json").read_text())
    compared = record["results"]["agreement"]
    first, last = compared[0], compared[-1]
    text = (
        "On 200 rows and 5,000 columns, glmnet's coefficients of the lasso depend on its threshold of convergence. "
        f"With its default, {first['threshold of glmnet']:g}, they agree with ours within 1e-5 at "
        f"{first['within 1e-5']} of {first['penalties']} penalties, and with {last['threshold of glmnet']:g} at "
        f"{last['within 1e-5']} of {last['penalties']}, where the largest difference is "
        f"{last['largest difference']:.1g}. The difference is glmnet's distance from the optimum: an exact Newton step "
        f"from its coefficients changes them by up to {last['Newton step, glmnet']:.1g} "
        f"({first['Newton step, glmnet']:.1g} with the default), and one from ours by up to "
        f"{last['Newton step, sumosurv']:.1g}. Ours satisfy the conditions of optimality at every penalty up to "
        f"{last['violation, sumosurv']:.1g} of the penalty ([all thresholds](performance.md#regressions)). A test "
        "checks the conditions and the Newton step by the definition of the likelihood "
        "(`tests/estimators/test_elastic_net.py`)."
    )
    return f"## Paths of penalties\n\n{textwrap.fill(text, 120, break_on_hyphens=False)}\n\n"


def coverage() -> str:
    """The section on the coverage of intervals."""
    studies = json.loads((ROOT / "results" / "coverage.json").read_text())["studies"]
    lines = [
        "| interval | design | intervals | expected | covered | too high | too low |",
        "|---|---|---|---|---|---|---|",
    ]
    for study in studies.values():
        for name, found in study["intervals"].items():
            n = found["intervals"]
            error = (
                found["coverage"] * (1.0 - found["coverage"]) / study["samples"]
            ) ** 0.5  # intervals of a sample depend
            share = f"{100 * found['coverage']:.1f} % ± {100 * error:.1f}"
            misses = " | ".join(f"{100 * found[side] / n:.1f} %" for side in ("above", "below"))
            facts = f"{study['samples']:,} samples of {study['design']} | {n:,} | {100 * study['expected']:.1f} %"
            lines.append(f"| {name} | {facts} | {share} | {misses} |")
    commits = ", ".join(dict.fromkeys(study["commit"] for study in studies.values()))
    versions = next(iter(studies.values()))["versions"]
    used = ", ".join(f"{package} {version}" for package, version in versions.items())
    return COVERAGE + "\n".join(lines) + f"\n\nCommit {commits}; {used}.\n\n"


def _text(value: object) -> str:
    return str(value[0] if isinstance(value, list) else value)


COVERAGE = """## Coverage of intervals

Samples are drawn from known distributions (`tools/coverage.py`), and 95 % intervals are computed for each. *Covered* is
the share that contains the truth, ± its standard error over samples. *Too high* and *too low* are the shares that
lie above and below the truth. For scores and their differences, the truth is the expected score; for the conformal
bound, it is the event time of a new subject.

*Expected* is 95 %, or less for limits that are quantiles over B resamples: the quantiles of B draws enclose another
draw with probability 1 - 2 (1 + 0.025 (B - 1)) / (B + 1), which is 94.1 % for B = 200. Increase `n_bootstrap` for
limits that are reported.

Not in the table: `validate` and `CoxPHCV` report standard errors (of the optimism over resamples, and of scores over
folds) and no limits. The spread of the members of a network (`predict_survival_band`, effects, and contrasts without
resampling) is not a confidence interval; [its coverage](uncertainty_evidence.md#bands) is lower.

"""

FOOT = """## How to repeat it

`make r-records` runs the scripts in `tests/r` and stores their results with the versions of R and of its packages.
`pytest tests/r` compares the library with the stored results. `make coverage` simulates the coverage of intervals
(about half an hour on one core), and `python tools/validation.py` writes this page.
"""

if __name__ == "__main__":
    (ROOT / "docs" / "validation.md").write_text(page())
