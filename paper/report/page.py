"""The page of results, written from the records: tables, pictures, and which claims hold."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paper.likelihood_k import NOTES as HALF_WIDTH_NOTES
from paper.likelihood_k import half_width_table
from paper.record import load_record
from paper.report.lines import GREATER_IS_BETTER, TITLES, Line, best, make_line, score_lines
from paper.report.ranks import ranking
from paper.report.score_table import (
    EXPLANATIONS,
    KKBOX,
    detail_table,
    few_trials,
    kkbox_table,
    table_lines,
)
from paper.report.text import markdown, mean_sd, number, signed
from paper.report.verdicts import Verdict, verdicts
from paper.searches import METHODS
from paper.table5 import NOTES as CORRELATION_NOTES
from paper.table5 import correlation, correlation_table, trial_scores
from paper.table6 import NOTES as CALIBRATION_NOTES
from paper.table6 import DTest, calibration_table, calibrations

__all__ = ["write_page"]

Record = dict[str, Any]
COMMAND = "python -m paper all --stored --page docs/results.md"

_INTRO = """# Results

Every method of the paper, tuned and scored by the same code on the same five folds of four real datasets. A method's
settings are chosen on the validation rows of each fold; what was chosen is scored once on the test rows
(the test scores of all trials are kept too, for the oracle's line and Table 5 alone). No figure on
this page was typed by hand: `{command}` writes it from the
[records]({records}), and `python -m paper table3 --stored` (or any other name) prints one table.

Means ± standard deviations are over folds ({split}). The paper's figures are beside ours; its folds
are others, and its SuMo-net is the one trial of many that is best *on the test rows*, which flatters."""

_BASELINES = """Our baselines are stronger than the paper's: of {count} rows of other methods in Table 3, {better} have
a higher S_L here. In the code released with the paper their weight decay was searched over but never handed to the
optimiser, the times of their curves were replaced by an even grid before IBS and IBLL were taken, their likelihoods
were computed from inputs scaled in another way than in training, and DeepHit's intervals left most events in the first
one. Here every network has the same preparation, the same kind of search (`space="recipe"`, around our defaults), its
best trials are mixed in the same way and their settings are trained a second time. What differs: the number of trials,
which stands in the tables; the networks of the second training ({members}); and the start
of the clock (`time_origin`), which SuMo-net alone may choose. Methods without a network have nothing to choose, and
are fitted to training and validation rows together."""

_WINDOW = """Curves that fall in steps have no density. As in the paper it is interpolated over a window of k steps on
either side (rows with \\*). Such a density need not integrate to one, and the width of the window decides how
good it looks: compare the column *as constant*, the same curve read as a density that is constant between steps, and
the tables by k below."""

_SUPPORT = """On SUPPORT nobody dies before the third day: by design of the study, those who did were not taken in. The
search of SuMo-net may therefore let the clock start at the smallest time (`time_origin="first"`), and where it does,
validation likelihood has chosen so ({chosen}).
That raises S_L on the first day, which many rows share. How much of it is real shows in *interval*, the likelihood of
the day itself, which no spike can raise: {interval} there against {density}. It also ties all subjects at
that time, where every curve is still 1, which costs concordance."""

_CALIBRATION = """The curves of the paper's score lie mostly above the diagonal for every method, as they would for the
truth: censored times count as events there. D-calibration is right for censored rows, which it spreads by the model's
own curve; where most rows are censored, as in FLCHAIN, it therefore has little power to reject."""

_SELECTION = """Every grey dot is one trial on one fold. To the right is what the validation rows praise, above what is
good on the test rows. The best trial on validation is often a lucky one; the best on test cannot be known
beforehand; a mixture of many good trials is good on both and needs no luck."""

_MIXTURE = """The size of the mixture is the largest that is no more than one standard error below the best size on
validation rows. Its settings are then trained again, on training and validation rows together."""


def write_page(
    records: Sequence[Record], others: Mapping[str, Path], page: Path, folder: Path, *, pictures: bool = True
) -> Path:
    """Write the page and its pictures (beside it, in ``figures``); returns the page's path.

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
        _intro(records, _relative(folder, page)),
        _held(records),
        _likelihood(records, drawn, page),
        *(_score(records, score, drawn, page) for score in ("IBLL", "IBS", "Ctd")),
        _ranks(records, drawn, page),
        _half_widths(records),
        _agreement(records, drawn, page),
        _calibrated(records, drawn, page),
        _choice(records, drawn, page),
        _kkbox(records),
        _costs(records, folder),
        _others(others, page),
    ]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")
    return page


# ---------------------------------------------------------------------- parts


def _intro(records: Sequence[Record], folder: str) -> str:
    splits = sorted({str(record["configuration"]["split"]) for record in records if _place(record)[0] != "kkbox"})
    text = _INTRO.format(command=COMMAND, records=folder or ".", split="split: " + ", ".join(splits))
    missing = _missing(records)
    text += f"\n\nNot run: {missing}." if missing else ""
    return text + "".join(f"\n\n{note}" for note in _notes(records))


def _notes(records: Sequence[Record]) -> list[str]:
    """What records say of themselves, with the places they say it of."""
    found: dict[str, list[str]] = {}
    for record in records:
        if note := record["configuration"].get("note"):
            dataset, method = _place(record)
            found.setdefault(note, []).append(f"{METHODS[method].label} on {TITLES[dataset]}")
    return [f"{', '.join(places)}: {note}" for note, places in found.items()]


def _missing(records: Sequence[Record]) -> str:
    datasets = _datasets(records)
    there = {_place(record) for record in records}
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
    text = f"## What holds\n\nOf {len(found)} claims about SuMo-net (its honest line) {held} hold."
    if held < len(found):
        names = "; ".join(f"{claim} ({', '.join(where)})" for claim, where in missed.items() if where)
        text += f" Missed: {names}. The figures that were reached are in the table."
    return _joined([text, markdown(["claim", *(TITLES[d] for d in datasets)], rows), _baselines(records)])


def _claims(found: Sequence[Verdict]) -> list[str]:
    return list(dict.fromkeys(verdict.claim for verdict in found))


def _baselines(records: Sequence[Record]) -> str:
    lines = [line for line in score_lines(records, "S_L") if line.method != "SumoNet" and line.difference is not None]
    lines = [line for line in lines if (line.method, line.dataset) != ("Soden", "support")]  # a misprint, it seems
    better = sum(line.difference is not None and line.difference > 0 for line in lines)
    return _BASELINES.format(count=len(lines), better=better, members=_members(records)) if lines else ""


def _members(records: Sequence[Record]) -> str:
    """How many networks the second training had, by method, in words."""
    counts: dict[str, list[str]] = {}
    for name, method in METHODS.items():
        searches = [
            r["configuration"].get("search", {}) for r in records if _place(r)[1] == name and _place(r)[0] != "kkbox"
        ]
        own = {search.get("refit_members") for search in searches}
        text = " or ".join(sorted((str(value) for value in own if value), key=int))
        if text:
            counts.setdefault(text, []).append(method.label)
    return "; ".join(f"{count} of {', '.join(labels)}" for count, labels in counts.items())


def _likelihood(records: Sequence[Record], drawn: Mapping[str, Path], page: Path) -> str:
    parts = ["## Log-likelihood (Table 3)", _picture(drawn, "s_l", "Log-likelihood by method and fold", page)]
    parts.append(_overview(records, "S_L"))
    parts.append("\n".join(f"- {EXPLANATIONS[name]}" for name in ("honest", "single", "oracle", "scale", "soden")))
    parts.append(_WINDOW)
    parts.append(_support(records))
    lines = table_lines(records, "S_L")
    for dataset in _datasets(records):
        own = [line for line in lines if line.dataset == dataset]
        head, rows = detail_table(records, own, "S_L")
        parts.append(f"### {TITLES[dataset]}: S_L with what belongs beside it\n\n{markdown(head, rows)}")
    notes = [EXPLANATIONS[name] for name in ("k", "window", "interval", "before")]
    notes += few_trials([line for line in lines if not line.simulated])
    parts.append("\n".join(f"- {note.replace('*', chr(92) + '*', 1)}" for note in notes))
    return _joined(parts)


def _support(records: Sequence[Record]) -> str:
    record = next((r for r in records if _place(r) == ("support", "SumoNet")), None)
    if record is None:
        return ""
    folds = record["results"]["folds"]
    first = sum(fold["best_params"].get("time_origin") == "first" for fold in folds)
    interval, density = make_line(record, "S_L_interval"), make_line(record, "S_L")
    if first == 0 or interval is None or density is None:
        return ""
    chosen = f"by the best trial of {first} of {len(folds)} folds"
    return _SUPPORT.format(chosen=chosen, interval=number(interval.mean, 3), density=number(density.mean, 3))


def _score(records: Sequence[Record], score: str, drawn: Mapping[str, Path], page: Path) -> str:
    titles = {
        "IBLL": "Integrated binomial log-likelihood (Table 4)",
        "IBS": "Integrated Brier score",
        "Ctd": "Time-dependent concordance",
    }
    notes = [] if score == "Ctd" else [EXPLANATIONS["pycox"]]
    picture = _picture(drawn, score.lower(), f"{titles[score]} by method and fold", page)
    return _joined([f"## {titles[score]}", picture, _overview(records, score), *notes])


def _ranks(records: Sequence[Record], drawn: Mapping[str, Path], page: Path) -> str:
    rank = ranking(records, "S_L")
    if rank is None:
        return ""
    text = (
        f"Methods ranked within each of {rank.blocks} dataset × fold and averaged. Two mean ranks of {len(rank.ranks)} "
        f"methods differ by Nemenyi's test at 5 % if they are {rank.critical:.2f} apart; the folds of a dataset share "
        "training rows, so that is a rough guide."
    )
    if rank.left_out:
        text += f" Left out, as not run on all datasets: {', '.join(METHODS[name].label for name in rank.left_out)}."
    return _joined(["## Average ranks", _picture(drawn, "ranks", "Average ranks of the methods", page), text])


def _half_widths(records: Sequence[Record]) -> str:
    parts = ["## Log-likelihood by half-width k (appendix: k = 1, 4, 8)", "\n".join(f"- {n}" for n in HALF_WIDTH_NOTES)]
    for dataset in _datasets(records):
        own = [r for r in records if _place(r)[0] == dataset]
        own = [r for r in own if METHODS[_place(r)[1]].density == "k" or _place(r)[1] == "SumoNet"]
        head, rows = half_width_table(own)
        parts.append(_folded(TITLES[dataset], markdown(head, rows)))
    return _joined(parts)


def _agreement(records: Sequence[Record], drawn: Mapping[str, Path], page: Path) -> str:
    trials = trial_scores(records)
    if trials.empty:
        return ""
    picture = _picture(drawn, "rank_correlation", "Rank correlation of scores over trials", page)
    names = ", ".join(METHODS[str(name)].label for name in trials["method"].unique())
    text = f"{len(trials)} trials of {names} on {trials['dataset'].nunique()} datasets."
    table = markdown(*correlation_table(correlation(trials)))
    return _joined(["## Do scores agree? (Table 5)", picture, table, text, *CORRELATION_NOTES])


def _calibrated(records: Sequence[Record], drawn: Mapping[str, Path], page: Path) -> str:
    picture = _picture(drawn, "calibration", "Calibration curves and shares of D-calibration", page)
    found = calibrations(records)
    datasets = _datasets(records)
    rows = []
    for label in dict.fromkeys(line.label for line, _ in found):
        own = {line.dataset: (line, test) for line, test in found if line.label == label}
        rows.append([label, *(_calibration_cell(*own[d]) if d in own else "-" for d in datasets)])
    overview = markdown(
        ["calibration score, and folds rejected by D-calibration", *(TITLES[d] for d in datasets)], rows
    )
    parts = ["## Calibration (Table 6)", picture, _CALIBRATION, overview]
    parts.append("\n".join(f"- {note}" for note in CALIBRATION_NOTES))
    for dataset in datasets:
        own_lines = [pair for pair in found if pair[0].dataset == dataset]
        parts.append(_folded(f"{TITLES[dataset]}: p values", markdown(*calibration_table(own_lines))))
    return _joined(parts)


def _calibration_cell(line: Line, test: DTest) -> str:
    text = f"{mean_sd(line.mean, line.sd, 3)}; {test.rejected} of {len(test.p_values)}"
    return text if line.published is None else f"{text}<br><sub>paper {number(line.published[0], 3)}</sub>"


def _choice(records: Sequence[Record], drawn: Mapping[str, Path], page: Path) -> str:
    selection = _picture(drawn, "selection", "Validation against test log-likelihood of the trials", page)
    mixture = _picture(drawn, "mixture", "Validation log-likelihood by size of the mixture", page)
    head = ["dataset", *(f"fold {i}" for i in range(5))]
    rows = []
    for record in records:
        if _place(record)[1] == "SumoNet":
            sizes = [str(fold["mixture_size"]) for fold in record["results"]["folds"]]
            rows.append([TITLES[_place(record)[0]], *sizes, *["-"] * (5 - len(sizes))])
    table = markdown(head, rows) if rows else ""
    parts = ["## How SuMo-net is chosen", selection, _SELECTION if selection else "", mixture, _MIXTURE]
    return _joined([*parts, f"Trials in the mixture:\n\n{table}"]) if rows else ""


def _kkbox(records: Sequence[Record]) -> str:
    own = [record for record in records if _place(record)[0] == "kkbox"]
    text = f"KKBOX's rows must be fetched from Kaggle. Below are {KKBOX}. "
    sizes = sorted({(int(r["configuration"].get("rows", 0)), len(r["configuration"]["folds"])) for r in own})
    text += " and ".join(f"{rows:,} simulated rows, {folds} of 5 folds" for rows, folds in sizes)
    text += f", split {own[0]['configuration']['split']}." if own else "No search on the simulated rows is stored yet."
    trials = {METHODS[_place(r)[1]].label: r["configuration"]["trials"] for r in own if METHODS[_place(r)[1]].searched}
    text += f" Trials: {', '.join(f'{label} {count}' for label, count in trials.items())}." if trials else ""
    rows: dict[str, list[str]] = {}
    scores = ("S_L", "IBLL", "IBS", "Ctd")
    for place, score in enumerate(scores):
        for label, ours, theirs, _ in kkbox_table(score_lines(records, score), score)[1]:
            row = rows.setdefault(label, ["-"] * 2 * len(scores))
            row[2 * place : 2 * place + 2] = [theirs, ours]
    head = ["method", *(f"{score}, {whose}" for score in scores for whose in ("paper", "simulated"))]
    return _joined(["## KKBOX", text, markdown(head, [[label, *cells] for label, cells in rows.items()])])


def _costs(records: Sequence[Record], folder: Path) -> str:
    datasets = _datasets(records)
    rows = []
    for name, method in METHODS.items():
        own = {_place(r)[0]: r for r in records if _place(r)[1] == name}
        if not own:
            continue
        cells = [_cost(own[dataset]) if dataset in own else "-" for dataset in datasets]
        rows.append([method.label, *cells])
    devices = sorted({str(record["configuration"]["device"]) for record in records})
    text = (
        "Seconds of a whole search: all trials on all folds and the second training, without the scoring of test rows; "
        f"trials a fold in brackets. Devices: {', '.join(devices)}; 'cpu' is marked. Other searches ran on the same "
        "device at the same time."
    )
    table = markdown(["method", *(TITLES[d] for d in datasets)], rows)
    return _joined(["## What a search costs", text, table, _on_a_cpu(folder)])


def _on_a_cpu(folder: Path) -> str:
    """A whole search on a CPU, where `benchmarks/search_seconds.py` has measured one."""
    path = folder / "search_seconds_cpu.json"
    if not path.is_file():
        return ""
    record = load_record(path)
    own, found = record["configuration"], record["results"]
    return (
        f"A search of {own['trials']} trials of SuMo-net on the five folds of {TITLES[own['dataset']]} took "
        f"{found['seconds'] / 60:.0f} minutes with {found['device']} (`benchmarks/search_seconds.py`); its networks "
        f"one by one would have taken {found['ratio']:.1f} times as long. The bar was 30 minutes on two cores: "
        f"{'it holds' if found['seconds'] < 1800 else 'it is missed'}."
    )


def _cost(record: Record) -> str:
    own = record["configuration"]
    trials = f" ({own['trials']})" if METHODS[own["method"]].searched else ""
    return f"{record['results']['search_seconds']:.0f} s{trials}" + (", cpu" if own["device"] == "cpu" else "")


def _others(others: Mapping[str, Path], page: Path) -> str:
    if not others:
        return ""
    links = [
        f"- `python -m paper {name.replace('_', '-')}`: [record]({_relative(path, page)})"
        for name, path in others.items()
    ]
    return "## Other tables and figures\n\n" + "\n".join(links)


# ---------------------------------------------------------------------- helpers


def _overview(records: Sequence[Record], score: str) -> str:
    """One row per method, one column per dataset; the best honest figure in bold."""
    parts = {"S_L": ("honest", "single", "oracle")}.get(score, ("honest",))
    lines = score_lines(records, score, sumo_parts=parts)
    datasets = _datasets(records)
    first = {
        dataset: best(line for line in lines if line.dataset == dataset and line.part == "honest")
        for dataset in datasets
    }
    rows = []
    for label in dict.fromkeys(line.label for line in lines):
        own = {line.dataset: line for line in lines if line.label == label}
        cells = [_cell(own[d], own[d] is first[d]) if d in own else "-" for d in datasets]
        window = score == "S_L" and next(iter(own.values())).density == "k"
        rows.append([label + (" \\*" if window else ""), *cells])
    arrow = "higher is better" if GREATER_IS_BETTER[score] else "lower is better"
    return markdown([f"{score} ({arrow})", *(TITLES[d] for d in datasets)], rows)


def _cell(line: Line, bold: bool) -> str:
    text = mean_sd(line.mean, line.sd)
    text = f"**{text}**" if bold else text
    if line.published is None:
        return text
    return f"{text}<br><sub>paper {number(line.published[0], 3)}, {signed(line.difference)}</sub>"


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def _picture(drawn: Mapping[str, Path], name: str, title: str, page: Path) -> str:
    return f"![{title}]({_relative(drawn[name], page)})" if name in drawn else ""


def _datasets(records: Sequence[Record]) -> list[str]:
    there = {_place(record)[0] for record in records}
    return [name for name in TITLES if name in there and name != "kkbox"]


def _place(record: Record) -> tuple[str, str]:
    return record["configuration"]["dataset"], record["configuration"]["method"]


def _relative(path: Path, page: Path) -> str:
    return Path(os.path.relpath(path, page.parent)).as_posix()


def _joined(parts: Sequence[str]) -> str:
    return "\n\n".join(part for part in parts if part)
