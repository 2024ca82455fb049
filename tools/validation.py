"""Write docs/validation.md: every statistic that is compared with R, and the largest difference.

    python tools/validation.py

The results of R are those of tests/r/*.json (`make r-records`); the library's are computed now.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "r"))

from against_r import STATISTICS, largest_difference, records  # noqa: E402

HEAD = """# Validation against R

Every statistic below is computed by R and by sumosurv from the same rows. The difference is the largest one over all
values of the entry, |sumosurv - R| / max(1, |R|). The tests require it to be below 1e-6.

*trial* and *spells* are simulated tables (`tests/r/data.R`) with ties, delayed entry, weights,
strata, clusters, competing risks, missing values and a column that separates the events. Weights that are not whole
numbers are scaled to a mean of one.

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
    return HEAD + f"Versions: {used}.\n\n" + "\n".join(lines) + "\n\n" + FOOT


def _text(value: object) -> str:
    return str(value[0] if isinstance(value, list) else value)


FOOT = """## How to repeat it

`make r-records` runs the scripts in `tests/r` and stores their results with the versions of R and of its packages.
`pytest tests/r` compares the library with the stored results, and `python tools/validation.py` writes this page.
"""

if __name__ == "__main__":
    (ROOT / "docs" / "validation.md").write_text(page())
