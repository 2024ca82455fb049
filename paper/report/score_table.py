"""Tables of one score: every method on every dataset, ours beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from paper.record import make_record, save_record
from paper.report.lines import GREATER_IS_BETTER, SELECTED, TITLES, Line, make_line, place_of, score_lines
from paper.report.published import published
from paper.report.stored import Question, gather
from paper.report.text import aligned, mean_sd, number, paper, signed
from paper.searches import METHODS

__all__ = [
    "EXPLANATIONS",
    "KKBOX",
    "detail_table",
    "few_trials",
    "kkbox_table",
    "save_table",
    "score_table",
    "table_lines",
]

SUMO_PARTS = {
    "S_L": (SELECTED, "single", "oracle", "before_refit"),
    "IBLL": (SELECTED, "single", "before_refit"),
    "IBS": (SELECTED, "single", "before_refit"),
    "Ctd": (SELECTED,),
}
KKBOX = "the paper's values, and ours on simulated rows of the same form, which are not comparable"
_FEW = 20  # trials below which it is said
EXPLANATIONS = {
    "selected": "selected on validation rows: an equally weighted mixture of the best trials on these rows, refitted "
    "to training and validation rows together.",
    "single": "best single trial on validation rows: no mixture, no refit.",
    "oracle": "best single trial on test rows: the paper's protocol, shown for comparison; it cannot be chosen in "
    "advance.",
    "before": "before the refit: the mixture of the chosen trials.",
    "k": "* density of a step curve, interpolated over a window of k = 2 steps. It need not integrate to one: 'mass' "
    "is its integral up to the last event, 'as constant' is S_L with a piecewise constant density.",
    "window": "† the same with a window of a fortieth of the steps: with k = 2 the forest's curves are flat around "
    "some events, and S_L is -inf.",
    "interval": "'interval' is the log-likelihood of the rounded time, which a spike on ties cannot raise. It is -inf "
    "for step curves, which have no mass between their steps.",
    "scale": "S_L is on the paper's scale: durations min-max scaled on the training rows.",
    "pycox": "Kaplan-Meier weights of the test rows, 100 times from the smallest to the largest test duration, as in "
    "the paper.",
    "soden": "The paper prints SODEN on SUPPORT as -0.676; judging by its other scores, the minus sign is a misprint.",
}


def score_table(name: str, score: str, title: str, question: Question) -> dict[str, Any]:
    """Gather the records, print the table, write ``<name>.json`` if anything is to be written; returns the record."""
    records = gather(question)
    lines = table_lines(records, score)
    notes = _notes(score, [line for line in lines if not line.simulated])
    for dataset in dict.fromkeys(line.dataset for line in lines if not line.simulated):
        own = [line for line in lines if line.dataset == dataset]
        print(f"\n{title}, {TITLES[dataset]}: {_split(own)}\n{aligned(*detail_table(records, own, score))}")
    if "kkbox" in question.names:
        print(f"\n{title}, KKBOX: {KKBOX}\n{aligned(*kkbox_table(lines, score))}")
    print("\n" + "\n".join(notes))
    rows = [asdict(line) | _beside(records, line) for line in lines]
    return save_table(name, question, records, {"score": score, "rows": rows, "notes": notes})


def table_lines(records: Sequence[dict[str, Any]], score: str) -> list[Line]:
    """All lines of a table."""
    return score_lines(records, score, sumo_parts=SUMO_PARTS[score])


def detail_table(
    records: Sequence[dict[str, Any]], lines: Sequence[Line], score: str
) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table of one dataset: ours, the paper's, the difference, and what belongs beside it."""
    arrow = "higher is better" if GREATER_IS_BETTER[score] else "lower is better"
    head = ["method", f"{score} ({arrow})", "paper", "difference"]
    head += ["interval", "mass", "as constant"] if score == "S_L" else []
    head += ["trials", "seconds"]
    rows = []
    for line in lines:
        record = next(r for r in records if place_of(r) == (line.dataset, line.method))
        mark = (" †" if _own_window(record) else " *") if score == "S_L" and line.density == "k" else ""
        row = [line.label + mark, mean_sd(line.mean, line.sd), paper(line.published), signed(line.difference)]
        if score == "S_L":
            beside = _beside(records, line)
            row += [number(beside.get("S_L_interval")), number(beside.get("mass_k2"), 3)]
            row += [number(beside.get("S_L_constant_density"))]
        rows.append([*row, str(line.trials) if line.searched else "-", f"{line.seconds:.0f}"])
    return head, rows


def kkbox_table(lines: Sequence[Line], score: str) -> tuple[list[str], list[list[str]]]:
    """Head and rows for KKBOX: the paper's figures, and ours on simulated rows where there are any."""
    rows = []
    for name, method in METHODS.items():
        ours = next((line for line in lines if line.simulated and line.method == name and line.part == SELECTED), None)
        figure = published(score, name, "kkbox")
        if ours is not None or figure is not None:
            own = (
                ["-", "-"]
                if ours is None
                else [mean_sd(ours.mean, ours.sd), str(ours.trials) if ours.searched else "-"]
            )
            rows.append([method.label, own[0], paper(figure), own[1]])
    return ["method", f"{score}, simulated rows", "paper, KKBOX", "trials"], rows


def save_table(
    name: str, question: Question, records: Sequence[dict[str, Any]], results: dict[str, Any]
) -> dict[str, Any]:
    """The small record of a table, written to the folder for new records if there is one."""
    configuration = {
        "seed": question.seed,
        "quick": question.quick,
        "records": [record["experiment"] for record in records],
    }
    record = make_record(name, configuration, results)
    target = question.target
    if target is not None and (question.whole or target != question.source):  # a part does not replace a whole table
        save_record(record, target)
    return record


def _beside(records: Sequence[dict[str, Any]], line: Line) -> dict[str, float]:
    """What S_L is shown with: means of other figures of the same choice."""
    if line.score != "S_L" or line.part != SELECTED:
        return {}
    record = next(r for r in records if place_of(r) == (line.dataset, line.method))
    names = ["S_L_interval", "S_L_constant_density"]
    if not _own_window(record):
        names.append("mass_k2")
    found = {score: make_line(record, score) for score in names}
    return {score: other.mean for score, other in found.items() if other is not None}


def _own_window(record: dict[str, Any]) -> bool:
    """Whether a method of step curves has another window than k = 2."""
    shown, with_two = make_line(record, "S_L"), make_line(record, "S_L_k2")
    return shown is not None and with_two is not None and shown.values != with_two.values


def _split(lines: Sequence[Line]) -> str:
    splits = sorted({line.split for line in lines})
    folds = sorted({len(line.values) for line in lines})
    return f"mean ± sd over {' or '.join(map(str, folds))} folds, split: {', '.join(splits)}"


def _notes(score: str, lines: Sequence[Line]) -> list[str]:
    names = ["selected", "single"] if len(SUMO_PARTS[score]) > 1 else ["selected"]
    names += ["oracle", "before", "k", "window", "interval", "scale", "soden"] if score == "S_L" else []
    names += ["before", "pycox"] if score in ("IBS", "IBLL") else []
    notes = [EXPLANATIONS[name] for name in names]
    return [*notes, *few_trials(lines)]


def few_trials(lines: Sequence[Line]) -> list[str]:
    """A note on methods of which few settings were tried, or none."""
    few = {METHODS[line.method].label: line.trials for line in lines if line.searched and line.trials < _FEW}
    text = ", ".join(f"{label} ({trials})" for label, trials in few.items())
    return (
        [f"Methods that solve a differential equation in every step are slow and have few trials: {text}."]
        if few
        else []
    )
