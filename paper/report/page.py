"""The pages of results, written from the records: tables, pictures, and which claims hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paper.kkbox_streamed import in_words
from paper.record import load_record
from paper.report.blocks import embedded, joined, overview, real_datasets, relative
from paper.report.lines import SELECTED, TITLES, Line, make_line, place_of, score_lines
from paper.report.prose import BASELINES, CALIBRATION, INTRO, MIXTURE, PEARSON, SELECTION, SUPPORT, TIME, WINDOW
from paper.report.ranks import ranking
from paper.report.score_table import EXPLANATIONS, KKBOX, few_trials, kkbox_table
from paper.report.seconds import seconds_part
from paper.report.text import markdown, mean_sd, number
from paper.report.verdicts import Verdict, verdicts
from paper.searches import METHODS
from paper.table5 import NOTES as CORRELATION_NOTES
from paper.table5 import correlation, correlation_table, trial_scores
from paper.table6 import NOTES as CALIBRATION_NOTES
from paper.table6 import DTest, calibrations

__all__ = ["write_page"]

Record = dict[str, Any]
COMMAND = "python -m paper all --stored --page docs/results.md"


def write_page(
    records: Sequence[Record], others: Mapping[str, Path], page: Path, folder: Path, *, pictures: bool = True
) -> Path:
    """Write the page of scores, its pictures (in ``figures``) and ``results_time.md``; returns the path of the page.

    Parameters
    ----------
    records : sequence of records
        Of searches.
    others : mapping
        Records of the other experiments, by name: they are linked to.
    page : path
        The Markdown file.
    folder : path
        Where the records are.
    pictures : bool
        False leaves them out (matplotlib is an optional extra).
    """
    drawn: dict[str, Path] = {}
    if pictures:
        from paper.report.pictures import draw_all

        drawn = draw_all(records, page.parent / "figures")
    parts = [
        _intro(records, relative(folder, page)),
        _held(records),
        _likelihood(records, drawn, page),
        *(_score(records, score, drawn, page) for score in ("IBLL", "IBS", "Ctd")),
        _ranks(records, drawn, page),
        _agreement(records, drawn, page),
        _calibrated(records, drawn, page),
        _choice(records, drawn, page),
        _kkbox(records, folder),
        _others(others, page),
    ]
    time = [TIME.format(records=relative(folder, page) or "."), seconds_part(folder), _costs(records, folder)]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(joined(parts) + "\n", encoding="utf-8")
    page.with_name("results_time.md").write_text(joined(time) + "\n", encoding="utf-8")
    return page


# ---------------------------------------------------------------------- parts


def _intro(records: Sequence[Record], folder: str) -> str:
    splits = sorted({str(record["configuration"]["split"]) for record in records if place_of(record)[0] != "kkbox"})
    text = INTRO.format(command=COMMAND, records=folder or ".", split="split: " + ", ".join(splits))
    missing = _missing(records)
    text += f"\n\nNot run: {missing}." if missing else ""
    return text + "".join(f"\n\n{note}" for note in _notes(records))


def _notes(records: Sequence[Record]) -> list[str]:
    """What records say of themselves, with the places they say it of."""
    found: dict[str, list[str]] = {}
    for record in records:
        if note := record["configuration"].get("note"):
            dataset, method = place_of(record)
            found.setdefault(note, []).append(f"{METHODS[method].label} on {TITLES[dataset]}")
    return [f"{', '.join(places)}: {note}" for note, places in found.items()]


def _missing(records: Sequence[Record]) -> str:
    datasets = real_datasets(records)
    there = {place_of(record) for record in records}
    lacking = {
        method.label: [TITLES[dataset] for dataset in datasets if (dataset, name) not in there]
        for name, method in METHODS.items()
    }
    return "; ".join(f"{label} on {', '.join(names)}" for label, names in lacking.items() if names)


def _held(records: Sequence[Record]) -> str:
    found = verdicts(records)
    if not found:
        return ""
    datasets = list(dict.fromkeys(verdict.dataset for verdict in found))
    rows = []
    for claim in _claims(found):
        cells = {v.dataset: f"**{'holds' if v.holds else 'missed'}**: {v.reached}" for v in found if v.claim == claim}
        rows.append([claim, *(cells.get(dataset, "-") for dataset in datasets)])
    held = sum(verdict.holds for verdict in found)
    missed = {claim: [TITLES[v.dataset] for v in found if v.claim == claim and not v.holds] for claim in _claims(found)}
    text = f"## What holds\n\nOf {len(found)} claims about SuMo-net, selected on validation rows, {held} hold."
    if held < len(found):
        names = "; ".join(f"{claim} ({', '.join(where)})" for claim, where in missed.items() if where)
        text += f" Missed: {names}."
    return joined([text, markdown(["claim", *(TITLES[d] for d in datasets)], rows), _baselines(records)])


def _claims(found: Sequence[Verdict]) -> list[str]:
    return list(dict.fromkeys(verdict.claim for verdict in found))


def _baselines(records: Sequence[Record]) -> str:
    lines = [line for line in score_lines(records, "S_L") if line.method != "SumoNet" and line.difference is not None]
    lines = [line for line in lines if (line.method, line.dataset) != ("Soden", "support")]  # a misprint, it seems
    better = sum(line.difference is not None and line.difference > 0 for line in lines)
    return BASELINES.format(count=len(lines), better=better, members=_members(records)) if lines else ""


def _members(records: Sequence[Record]) -> str:
    """How many networks the refit had, by method, in words."""
    counts: dict[str, list[str]] = {}
    for name, method in METHODS.items():
        searches = [
            r["configuration"].get("search", {})
            for r in records
            if place_of(r)[1] == name and place_of(r)[0] != "kkbox"
        ]
        own = {search.get("refit_members") for search in searches}
        text = " or ".join(sorted((str(value) for value in own if value), key=int))
        if text:
            counts.setdefault(text, []).append(method.label)
    return "; ".join(f"{count} for {', '.join(labels)}" for count, labels in counts.items())


def _likelihood(records: Sequence[Record], drawn: Mapping[str, Path], page: Path) -> str:
    parts = ["## Log-likelihood (Table 3)", embedded(drawn, "s_l", "Log-likelihood by method and fold", page)]
    parts.append(overview(records, "S_L"))
    parts.append("\n".join(f"- {EXPLANATIONS[name]}" for name in ("selected", "single", "oracle", "scale", "soden")))
    parts.append(WINDOW)
    parts.append(_support(records))
    parts += few_trials([line for line in score_lines(records, "S_L") if not line.simulated])
    return joined(parts)


def _support(records: Sequence[Record]) -> str:
    record = next((r for r in records if place_of(r) == ("support", "SumoNet")), None)
    if record is None:
        return ""
    folds = record["results"]["folds"]
    first = sum(fold["best_params"].get("time_origin") == "first" for fold in folds)
    interval, density = make_line(record, "S_L_interval"), make_line(record, "S_L")
    if first == 0 or interval is None or density is None:
        return ""
    chosen = f"in the best trial of {first} of {len(folds)} folds"
    return SUPPORT.format(chosen=chosen, interval=number(interval.mean, 3), density=number(density.mean, 3))


def _score(records: Sequence[Record], score: str, drawn: Mapping[str, Path], page: Path) -> str:
    titles = {
        "IBLL": "Integrated binomial log-likelihood (Table 4)",
        "IBS": "Integrated Brier score",
        "Ctd": "Time-dependent concordance",
    }
    notes = [] if score == "Ctd" else [EXPLANATIONS["pycox"]]
    picture = embedded(drawn, score.lower(), f"{titles[score]} by method and fold", page)
    return joined([f"## {titles[score]}", picture, overview(records, score), *notes])


def _ranks(records: Sequence[Record], drawn: Mapping[str, Path], page: Path) -> str:
    rank = ranking(records, "S_L")
    if rank is None:
        return ""
    text = (
        f"Methods are ranked within each of {rank.blocks} folds, and ranks are averaged. Two mean ranks of "
        f"{len(rank.ranks)} methods differ significantly (Nemenyi, 5 %) if they are {rank.critical:.2f} apart. This "
        "is only a guide, because the folds of a dataset share training rows."
    )
    if rank.left_out:
        text += f" Not run on all datasets: {', '.join(METHODS[name].label for name in rank.left_out)}."
    return joined(["## Average ranks", embedded(drawn, "ranks", "Average ranks of the methods", page), text])


def _agreement(records: Sequence[Record], drawn: Mapping[str, Path], page: Path) -> str:
    trials = trial_scores(records)
    if trials.empty:
        return ""
    picture = embedded(drawn, "rank_correlation", "Rank correlation of scores over trials", page)
    names = ", ".join(METHODS[str(name)].label for name in trials["method"].unique())
    text = f"{len(trials)} trials of {names} on {trials['dataset'].nunique()} datasets."
    table = markdown(*correlation_table(correlation(trials)))
    return joined(["## Do scores agree? (Table 5)", picture, table, text, *CORRELATION_NOTES])


def _calibrated(records: Sequence[Record], drawn: Mapping[str, Path], page: Path) -> str:
    picture = embedded(drawn, "calibration", "Calibration curves and shares of D-calibration", page)
    found = calibrations(records)
    datasets = real_datasets(records)
    rows = []
    for label in dict.fromkeys(line.label for line, _ in found):
        own = {line.dataset: (line, test) for line, test in found if line.label == label}
        rows.append([label, *(_calibration_cell(*own[d]) if d in own else "-" for d in datasets)])
    overview = markdown(
        ["calibration score, and folds rejected by D-calibration", *(TITLES[d] for d in datasets)], rows
    )
    parts = ["## Calibration (Table 6)", picture, CALIBRATION, overview]
    parts.append("\n".join(f"- {note}" for note in CALIBRATION_NOTES))
    older = [place_of(r) for r in records if "commit" not in r and place_of(r)[0] in datasets]  # than the correction
    if older:
        parts.append(PEARSON.format(methods=", ".join(f"{METHODS[m].label} ({TITLES[d]})" for d, m in older)))
    return joined([*parts, "`python -m paper table6 --stored` prints the p-values of every fold."])


def _calibration_cell(line: Line, test: DTest) -> str:
    text = f"{mean_sd(line.mean, line.sd, 3)}; {test.rejected} of {len(test.p_values)}"
    return text if line.published is None else f"{text}<br><sub>paper {number(line.published[0], 3)}</sub>"


def _choice(records: Sequence[Record], drawn: Mapping[str, Path], page: Path) -> str:
    selection = embedded(drawn, "selection", "Validation against test log-likelihood of the trials", page)
    mixture = embedded(drawn, "mixture", "Validation log-likelihood by size of the mixture", page)
    head = ["dataset", *(f"fold {i}" for i in range(5))]
    rows = []
    for record in records:
        if place_of(record)[1] == "SumoNet":
            sizes = [str(fold["mixture_size"]) for fold in record["results"]["folds"]]
            rows.append([TITLES[place_of(record)[0]], *sizes, *["-"] * (5 - len(sizes))])
    table = markdown(head, rows) if rows else ""
    parts = ["## How SuMo-net is chosen", selection, SELECTION if selection else "", mixture, MIXTURE]
    return joined([*parts, f"Trials in the mixture:\n\n{table}"]) if rows else ""


def _kkbox(records: Sequence[Record], folder: Path) -> str:
    own = [record for record in records if place_of(record)[0] == "kkbox"]
    text = f"The KKBOX data must be downloaded from Kaggle. The table shows {KKBOX}. "
    sizes = sorted({(int(r["configuration"].get("rows", 0)), len(r["configuration"]["folds"])) for r in own})
    text += " and ".join(f"{rows:,} simulated rows, {folds} of 5 folds" for rows, folds in sizes)
    text += f", split {own[0]['configuration']['split']}." if own else "No search on the simulated rows is stored yet."
    trials = {
        METHODS[place_of(r)[1]].label: r["configuration"]["trials"] for r in own if METHODS[place_of(r)[1]].searched
    }
    text += f" Trials: {', '.join(f'{label} {count}' for label, count in trials.items())}." if trials else ""
    rows: dict[str, list[str]] = {}
    scores = ("S_L", "IBLL", "IBS", "Ctd")
    for place, score in enumerate(scores):
        for label, ours, theirs, _ in kkbox_table(score_lines(records, score), score)[1]:
            row = rows.setdefault(label, ["-"] * 2 * len(scores))
            row[2 * place : 2 * place + 2] = [theirs, ours]
    head = ["method", *(f"{score}, {whose}" for score in scores for whose in ("paper", "simulated"))]
    table = markdown(head, [[label, *cells] for label, cells in rows.items()])
    streamed = folder / "kkbox_streamed.json"
    told = in_words(load_record(streamed)) if streamed.is_file() else ""
    return joined(["## KKBOX", text, table, _behind_the_truth(own), told])


def _behind_the_truth(records: Sequence[Record]) -> str:
    """Simulated rows have a true distribution: how far each method's likelihood of the recorded day is from it."""
    rows = []
    for record in records:
        # whole days: a step curve has its steps there, and what it loses over a day is its probability of that day
        name = "S_L_interval" if METHODS[place_of(record)[1]].density == "exact" else "S_L_constant_density"
        pairs = [(fold[SELECTED].get(name), fold.get("truth")) for fold in record["results"]["folds"]]
        if all(value is not None and truth is not None for value, truth in pairs):
            behind = float(np.mean([truth["S_L_interval"] - value for value, truth in pairs]))
            mean = float(np.mean([value for value, _ in pairs]))
            rows.append((behind, [METHODS[place_of(record)[1]].label, number(mean), number(behind)]))
    if not rows:
        return ""
    text = (
        "The true distribution of the simulated rows is known. The log-likelihood of the recorded day, and its "
        "distance from that of the true distribution on the same test rows:"
    )
    cells = [cells for _, cells in sorted(rows, key=lambda row: row[0])]
    return f"{text}\n\n{markdown(['method', 'S_L of the day', 'behind the truth'], cells)}"


def _costs(records: Sequence[Record], folder: Path) -> str:
    datasets = real_datasets(records)
    rows = []
    for name, method in METHODS.items():
        own = {place_of(r)[0]: r for r in records if place_of(r)[1] == name}
        if not own:
            continue
        cells = [_cost(own[dataset]) if dataset in own else "-" for dataset in datasets]
        rows.append([method.label, *cells])
    devices = sorted({str(record["configuration"]["device"]) for record in records})
    text = (
        "Seconds of a whole search: all trials on all folds and the refit, without scoring the test rows; trials per "
        f"fold in brackets. Devices: {', '.join(devices)}; 'cpu' is marked. Up to a dozen searches shared the GPU, so "
        "that most of these times are longer than those of a search alone."
    )
    table = markdown(["method", *(TITLES[d] for d in datasets)], rows)
    return joined(
        ["## What a search costs", text, table, *(_alone(folder, name) for name in ("cuda", "cuda_support", "cpu"))]
    )


def _alone(folder: Path, name: str) -> str:
    """A whole search that had the machine to itself, where `benchmarks/search_seconds.py` has measured one."""
    path = folder / f"search_seconds_{name}.json"
    if not path.is_file():
        return ""
    record = load_record(path)
    own, found = record["configuration"], record["results"]
    where = found["device"] if own["device"] == "cuda" else f"a CPU (threads: {own['threads']})"
    return (
        f"Alone on {where}, a search of {own['trials']} trials of SuMo-net on the five folds of "
        f"{TITLES[own['dataset']]} took {_duration(found['seconds'])} (`benchmarks/search_seconds.py`). Trained one by "
        f"one, its networks would have taken {found['ratio']:.1f} times as long."
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def _cost(record: Record) -> str:
    own = record["configuration"]
    trials = f" ({own['trials']})" if METHODS[own["method"]].searched else ""
    return f"{record['results']['search_seconds']:.0f} s{trials}" + (", cpu" if own["device"] == "cpu" else "")


def _others(others: Mapping[str, Path], page: Path) -> str:
    if not others:
        return ""
    links = [
        f"- `python -m paper {name.replace('_', '-')}`: [record]({relative(path, page)})"
        for name, path in others.items()
    ]
    return "## Other tables and figures\n\n" + "\n".join(links)
