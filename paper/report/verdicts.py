"""Which claims about SuMo-net hold in the records, with the figures on which that rests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paper.report.lines import GREATER_IS_BETTER, Line, best, make_line
from paper.report.text import number, signed
from paper.table6 import d_test

__all__ = ["SECONDS", "TARGETS", "Verdict", "verdicts"]

TARGETS = {"metabric": -0.130, "gbsg": -0.373, "flchain": -0.356, "support": 0.715}  # mean test S_L to reach
SECONDS = 60.0  # of a search of 300 trials on five folds, on one large GPU

_CLAIMS = {
    "S_L": "S_L ahead of every other method",
    "S_L_interval": "S_L of the rounded time ahead of every other method",
    "IBLL": "IBLL at least as good as the best other",
    "IBS": "IBS at least as good as the best other",
    "Ctd": "Ctd at least as good as the best other",
}

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Verdict:
    """One claim on one dataset."""

    claim: str
    dataset: str
    holds: bool
    reached: str


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge every claim on every dataset that has a record of SuMo-net."""
    found: list[Verdict] = []
    for dataset in TARGETS:
        own = [r for r in records if r["configuration"]["dataset"] == dataset]
        sumo = next((r for r in own if r["configuration"]["method"] == "SumoNet"), None)
        if sumo is None:
            continue
        others = [r for r in own if r is not sumo]
        found += [_target(sumo, dataset), *_against_peers(sumo, others, dataset), _calibrated(sumo, dataset)]
        found += [] if _on_cpu(sumo) else [_quick(sumo, dataset)]
    return found


def _target(sumo: Record, dataset: str) -> Verdict:
    line, target = _selected(sumo, "S_L"), TARGETS[dataset]
    return Verdict("S_L at least the target", dataset, line.mean >= target, f"{line.mean:.4f}, target {target:.3f}")


def _against_peers(sumo: Record, others: Sequence[Record], dataset: str) -> list[Verdict]:
    found = []
    for score, claim in _CLAIMS.items():
        ours = _selected(sumo, score)
        peer = best(line for record in others if (line := make_line(record, score)) is not None)
        if peer is None:
            continue
        sign = 1.0 if GREATER_IS_BETTER[score] else -1.0
        gain = sign * (ours.mean - peer.mean)
        holds = gain > 0 if score.startswith("S_L") else gain >= 0
        found.append(Verdict(claim, dataset, holds, _comparison(ours, peer, sign)))
    return found


def _comparison(ours: Line, peer: Line, sign: float) -> str:
    wins = sum(sign * a > sign * b for a, b in zip(ours.values, peer.values))
    beside = f"{signed(ours.mean - peer.mean, 4)}; better in {wins} of {len(ours.values)} folds"
    return f"{number(ours.mean)}, {peer.label} {number(peer.mean)} ({beside})"


def _calibrated(sumo: Record, dataset: str) -> Verdict:
    test = d_test(_selected(sumo, "D_calibration_p").values)
    text = f"rejected in {test.rejected} of {len(test.p_values)} folds, combined p {test.combined:.2f}"
    return Verdict("D-calibration not rejected", dataset, test.passed, text)


def _quick(sumo: Record, dataset: str) -> Verdict:
    own, seconds = sumo["configuration"], float(sumo["results"]["search_seconds"])
    claim = f"search under {SECONDS:.0f} s on one GPU"
    text = f"{seconds:.0f} s, {own['trials']} trials on {len(own['folds'])} folds, {own['device']}"
    return Verdict(claim, dataset, seconds < SECONDS, text)


def _on_cpu(record: Record) -> bool:
    return str(record["configuration"]["device"]) == "cpu"


def _selected(record: Record, score: str) -> Line:
    line = make_line(record, score)
    if line is None:
        raise ValueError(f"The record {record['experiment']} has no {score}; run its search again.")
    return line
