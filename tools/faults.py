"""Faults that once went unseen: each is planted in a copy of the source, and the tests named beside it must fail.

    python tools/faults.py            # all of them
    python tools/faults.py halving    # those whose name has the word

A fault whose old text is no longer in the source is stale, and an error: say it anew for the code as it is.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from planting import ROOT, Copy, preload

LIMIT = 90.0  # seconds for the tests of one fault


@dataclass(frozen=True)
class Fault:
    """Old text of a file, the new text that is wrong, and a test that must see it."""

    name: str
    path: str
    old: str
    new: str
    test: str


_FIT, _SEARCH, _TABLES = (
    "tests/estimators/test_fit_routes.py",
    "tests/search/test_search_routes.py",
    "tests/paper/test_table_routes.py",
)
_NET, _RUN, _ROUNDS = (
    "src/sumosurv/estimators/network.py",
    "src/sumosurv/search/run.py",
    "src/sumosurv/search/rounds.py",
)
_READING, _STEP, _LOOP, _HISTORY = (
    "src/sumosurv/estimators/reading.py",
    "src/sumosurv/training/step.py",
    "src/sumosurv/training/loop.py",
    "src/sumosurv/training/history.py",
)
_OUTCOMES = "tests/estimators/test_outcomes.py"
_LEARNED = f"{_FIT}::test_columns_and_the_unit_of_time_are_learned_from_training_rows_alone"

_CAPACITY, _KINDS = "src/sumosurv/estimators/capacity.py", "tests/estimators/test_capacity.py"

FAULTS = (
    # ------------------------------------------------------------------ kinds of networks, cells of time
    Fault(
        "kinds are weighted without a prior",
        _CAPACITY,
        "new = (counts + _PRIOR_ROWS / parts) / (own.sum() + _PRIOR_ROWS)",
        "new = counts / own.sum()",
        f"{_KINDS}::test_weights_are_those_of_the_most_likely_mixture",
    ),
    Fault(
        "networks of a kind stop one by one",
        _CAPACITY,
        "    together = None if own_validation else 0\n",
        "    together = None\n",
        f"{_KINDS}::test_members_are_told",
    ),
    Fault(
        "kinds are weighted by rows that they were trained on",
        _CAPACITY,
        "    held_out = [member.valid_rows for member in members if member.valid_rows is not None]\n",
        "    held_out = [member.train_rows for member in members if member.valid_rows is not None]\n",
        f"{_KINDS}::test_held_out_rows_decide_the_weights",
    ),
    Fault(
        "kinds hold out different folds",
        _CAPACITY,
        "        members = [replace(",
        "        splits = splits if own_validation else _held_out_folds(first, rows, largest, random)\n"
        "        members = [replace(",
        f"{_KINDS}::test_rows_are_scored_by_networks_that_did_not_train_on_them",
    ),
    Fault(
        "kinds have equal weights",
        "src/sumosurv/estimators/sumonet.py",
        "        weights = stacking_weights(held_out, rows.outcome.weight)\n",
        "        weights = np.full(len(kinds), 1 / len(kinds))\n",
        f"{_KINDS}::test_held_out_rows_decide_the_weights",
    ),
    Fault(
        "rounded times are trained on as exact",
        _READING,
        "    observed = outcome if cells is None else cells.of(outcome)\n",
        "    observed = outcome\n",
        "tests/test_cells.py::test_of_rounded_times_the_curve_stays_smooth_and_near_the_truth",
    ),
    Fault(
        "cells start before a row was under observation",
        "src/sumosurv/outcome/record.py",
        "            lower = np.maximum(lower, outcome.entry)\n",
        "            pass\n",
        "tests/test_cells.py::test_events_lie_in_their_cells_no_earlier_than_their_entry",
    ),
    # ------------------------------------------------------------------ entry, intervals, weights, causes, subjects
    Fault(
        "entry is not taken off the likelihood",
        "src/sumosurv/networks/likelihood.py",
        "        terms = terms - curves.log_survival(outcome.entry)\n",
        "        pass\n",
        f"{_OUTCOMES}::test_the_training_objective_is_the_likelihood_of_the_distribution",
    ),
    Fault(
        "an interval scores as right-censored",
        "src/sumosurv/networks/likelihood.py",
        "terms = torch.where(inside, log_difference(terms, end, inside), terms)",
        "terms = terms",
        f"{_OUTCOMES}::test_the_training_objective_is_the_likelihood_of_the_distribution",
    ),
    Fault(
        "a row with an event is asked for all causes",
        "src/sumosurv/networks/causes.py",
        "terms = torch.where(cause > 0, of_own, torch.logsumexp(parts, dim=0))",
        "terms = torch.logsumexp(parts, dim=0)",
        f"{_OUTCOMES}::test_the_training_objective_is_the_likelihood_of_the_distribution",
    ),
    Fault(
        "weights are ignored in training",
        "src/sumosurv/training/step.py",
        "return values if batch.outcome.weight is None else values * batch.outcome.weight",
        "return values",
        f"{_OUTCOMES}::test_whole_weights_are_repeated_rows",
    ),
    Fault(
        "weights are ignored by the columns",
        "src/sumosurv/estimators/reading.py",
        "    ).fit(X, outcome.weight)\n",
        "    ).fit(X)\n",
        f"{_OUTCOMES}::test_whole_weights_are_repeated_rows",
    ),
    Fault(
        "the rows of a subject are parted",
        "src/sumosurv/training/data.py",
        "    if outcome.group is None:\n        return np.sort(train), np.sort(valid)\n",
        "    if outcome.group is not None:\n        train, valid = train_test_split(np.arange(len(outcome)), "
        "test_size=fraction, random_state=seed)\n    return np.sort(train), np.sort(valid)\n",
        f"{_OUTCOMES}::test_subjects_are_held_out_whole",
    ),
    Fault(
        "a spell goes on past its end",
        "src/sumosurv/distributions/covariate_path.py",
        "return torch.minimum(torch.maximum(self._spell_times(t), self.starts), self.ends)",
        "return torch.maximum(self._spell_times(t), self.starts)",
        f"{_OUTCOMES}::test_a_path_is_the_product_of_its_spells",
    ),
    # ------------------------------------------------------------------ the paper's tables
    Fault(
        "a search is given test rows as validation",
        "paper/scoring.py",
        "(self.X.iloc[self.valid], self.y[self.valid])",
        "(self.X.iloc[self.test], self.y[self.test])",
        f"{_TABLES}::test_test_rows_decide_nothing_in_a_search",
    ),
    Fault(
        "baselines are fitted on test rows too",
        "paper/scoring.py",
        "both = np.concatenate([self.train, self.valid])",
        "both = np.concatenate([self.train, self.valid, self.test])",
        f"{_TABLES}::test_baselines_are_fitted_to_training_and_validation_rows",
    ),
    Fault(
        "baselines are fitted on test rows alone",
        "paper/searches.py",
        "X, y = fold.all_rows()",
        "X, y = fold.X_test, fold.y_test",
        f"{_TABLES}::test_baselines_are_fitted_to_training_and_validation_rows",
    ),
    Fault(
        "the scale of S_L is that of all rows",
        "paper/scoring.py",
        'times = self.y["time"][self.train]\n        return float(self.y["event"]',
        'times = self.y["time"]\n        return float(self.y["event"]',
        f"{_TABLES}::test_the_scale_of_the_likelihood_is_that_of_training_rows",
    ),
    Fault(
        "the oracle is the worst trial",
        "paper/searches.py",
        '"S_L": float(known.max())',
        '"S_L": float(known.min())',
        f"{_TABLES}::test_the_oracle_is_the_best_trial_on_test_rows",
    ),
    Fault(
        "the oracle names the worst trial",
        "paper/searches.py",
        '"trial": int(np.argmax(known))',
        '"trial": int(np.argmin(known))',
        f"{_TABLES}::test_the_oracle_is_the_best_trial_on_test_rows",
    ),
    Fault(
        "a table shows another search's figure",
        "paper/report/stored.py",
        "path = question.find(record_name(dataset, method))",
        'path = question.find(record_name(dataset, "SumoNet"))',
        f"{_TABLES}::test_missing_searches_are_run_said_and_stored",
    ),
    # ------------------------------------------------------------------ what a fit learns before training
    Fault(
        "columns are learned from validation rows too",
        _READING,
        "    ).fit(X, outcome.weight)\n",
        "    ).fit(\n"
        '        X if validation_rows is None else __import__("pandas").concat([X, validation_rows[0]])\n    )\n',
        _LEARNED,
    ),
    Fault(
        "the unit of time is that of validation rows too",
        _READING,
        "unit = time_unit(observed[:n].on_clock(origin))",
        "unit = time_unit(observed.on_clock(origin))",
        _LEARNED,
    ),
    Fault(
        "time features and cuts are those of validation rows too",
        _READING,
        "return self.outcome[: self.n_train].on_clock(self.time_origin)",
        "return self.outcome.on_clock(self.time_origin)",
        f"{_FIT}::test_what_a_method_learns_of_the_outcome_it_learns_from_training_rows_alone",
    ),
    Fault(
        "the baseline is learned from validation rows too",
        _NET,
        "n = len(rows.outcome) if on_all_rows else rows.n_train",
        "n = len(rows.outcome)",
        f"{_FIT}::test_baselines_come_from_training_rows_and_after_a_refit_from_all",
    ),
    Fault(
        "after a refit the baseline is that of training rows",
        _NET,
        "n = len(rows.outcome) if on_all_rows else rows.n_train",
        "n = rows.n_train",
        f"{_FIT}::test_baselines_come_from_training_rows_and_after_a_refit_from_all",
    ),
    # ------------------------------------------------------------------ who trains on what
    Fault(
        "members share one split",
        _NET,
        "split_rows(rows.outcome, seed, self.validation_fraction)",
        "split_rows(rows.outcome, seeds[0], self.validation_fraction)",
        f"{_FIT}::test_members_hold_out_different_rows_and_together_see_them_all",
    ),
    Fault(
        "members share one shuffle",
        "src/sumosurv/training/batches.py",
        "random_bits(stream_key(seeds, _SHUFFLE, epoch)",
        "random_bits(stream_key(seeds[:1].expand(len(seeds)), _SHUFFLE, epoch)",
        f"{_FIT}::test_members_with_the_same_start_and_rows_part_by_their_shuffles",
    ),
    Fault(
        "a split that is not stratified",
        "src/sumosurv/training/data.py",
        "random_state=seed, stratify=stratify)",
        "random_state=seed)",
        f"{_FIT}::test_a_split_has_the_share_of_events_of_all_rows",
    ),
    Fault(
        "validation rows are trained on",
        _READING,
        "return every[: self.n_train], every[self.n_train :] if",
        "return every, every[self.n_train :] if",
        "tests/estimators/test_sumonet.py::test_validation_rows_decide_and_are_not_trained_on",
    ),
    Fault(
        "the last epoch is kept, whatever validation rows say",
        "src/sumosurv/training/kept.py",
        "better = self.running & moved & torch.isfinite(score) & (score > self.best_valid)",
        "better = self.running & moved & torch.isfinite(score)",
        "tests/estimators/test_sumonet.py::test_validation_rows_decide_and_are_not_trained_on",
    ),
    Fault(
        "a refit on training rows only",
        _NET,
        "every = np.arange(len(rows.outcome))",
        "every = members[0].train_rows",
        f"{_FIT}::test_a_refit_learns_what_only_validation_rows_tell",
    ),
    Fault(
        "a refit stops one epoch late",
        _NET,
        "stop_after=int(epoch))",
        "stop_after=int(epoch) + 1)",
        f"{_FIT}::test_a_refit_is_the_training_of_all_rows_up_to_the_best_epoch",
    ),
    Fault(
        "a refit of all members stops with the first",
        _NET,
        "np.where(history.failed, -1, history.best_epoch))",
        "np.where(history.failed, -1, history.best_epoch[0]))",
        f"{_FIT}::test_a_refit_is_the_training_of_all_rows_up_to_the_best_epoch",
    ),
    # ------------------------------------------------------------------ training
    Fault(
        "padding rows count in the loss",
        _STEP,
        "weighted(torch.where(self.present, self.network.terms(batch), 0.0), batch)",
        "weighted(self.network.terms(batch), batch)",
        "tests/training/test_loop.py::test_members_with_different_numbers_of_rows",
    ),
    Fault(
        "padding rows count in the mean",
        _STEP,
        "self.count.copy_(rows.present.sum(1).clamp_min(1))",
        "self.count.fill_(rows.present.shape[1])",
        f"{_FIT}::test_padding_rows_count_nowhere",
    ),
    Fault(
        "moments decay on a step that is not taken",
        "src/sumosurv/training/optimiser.py",
        "weight1, weight2 = (1 - beta1) * step, (1 - beta2) * step",
        "weight1, weight2 = (1 - beta1) * torch.ones_like(step), (1 - beta2) * torch.ones_like(step)",
        "tests/training/test_optimiser.py::test_a_step_that_is_not_taken_leaves_no_trace",
    ),
    Fault(
        "the unit shifts training likelihoods the wrong way",
        _HISTORY,
        "train=[values - self.train for values in history.train]",
        "train=[values + self.train for values in history.train]",
        f"{_FIT}::test_history_is_in_the_unit_of_the_user",
    ),
    Fault(
        "the unit shifts validation likelihoods the wrong way",
        _HISTORY,
        "valid=[values - self.valid for values in history.valid]",
        "valid=[values + self.valid for values in history.valid]",
        f"{_FIT}::test_history_is_in_the_unit_of_the_user",
    ),
    Fault(
        "on_epoch is told likelihoods shifted the wrong way",
        _HISTORY,
        "train=epoch.train - self.train, valid=valid)",
        "train=epoch.train + self.train, valid=valid)",
        f"{_FIT}::test_history_is_in_the_unit_of_the_user",
    ),
    Fault(
        "workers drop the same units of different rows",
        _STEP,
        "stream.first_row = self.share.start",
        "stream.first_row = 0",
        "tests/training/test_parallel.py::test_workers_train_what_one_process_trains",
    ),
    Fault(
        "a checkpoint forgets the optimiser",
        _STEP,
        "return [*own, adam.weights, adam.mean, adam.square, adam.count]",
        "return [*own, adam.weights]",
        "tests/training/test_checkpoint.py::test_a_training_that_goes_on_ends_where_it_would_have_ended",
    ),
    # ------------------------------------------------------------------ searches
    Fault(
        "halving keeps the worst",
        _ROUNDS,
        "order = sorted(going, key=lambda n: -run.score(n))",
        "order = sorted(going, key=lambda n: run.score(n))",
        f"{_SEARCH}::test_halving_trains_the_best_third_longer",
    ),
    Fault(
        "a search trains again on training rows only",
        _RUN,
        "every = np.arange(len(self.job.rows(self.parameters[trial]).outcome))",
        "every = self.splits[0][0]",
        f"{_SEARCH}::test_training_again_uses_all_rows",
    ),
    Fault(
        "a cross training on training rows only",
        _RUN,
        "split_rows(self.job.rows(parameters).outcome, seed, fraction)",
        "split_rows(self.job.rows(parameters).outcome[self.splits[0][0]], seed, fraction)",
        f"{_SEARCH}::test_training_again_uses_all_rows",
    ),
    Fault(
        "a search trains again to the wrong epoch",
        _RUN,
        "member, last = population.members[place], int(population.history.best_epoch[place])",
        "member, last = population.members[place], int(population.history.best_epoch[0])",
        f"{_SEARCH}::test_training_again_goes_to_the_best_epoch_of_each_network",
    ),
    Fault(
        "networks of a cross training share a seed",
        _RUN,
        "len(self.splits) + 1 + i // len(trials))",
        "len(self.splits) + 1)",
        f"{_SEARCH}::test_networks_of_a_cross_training_have_seeds_and_held_out_rows_of_their_own",
    ),
    Fault(
        "parts of a mixture are not weighted",
        _RUN,
        "SurvivalMixture.of(parts, weights=[part.n_members_ for part in parts])",
        "SurvivalMixture.of(parts)",
        f"{_SEARCH}::test_every_network_of_a_mixture_counts_once_whatever_population_it_is_in",
    ),
    Fault(
        "the best mixture, and not the largest within a standard error",
        "src/sumosurv/search/choice.py",
        "                chosen = size",
        "                chosen = best",
        f"{_SEARCH}::test_size_is_the_largest_within_a_standard_error",
    ),
    Fault(
        "two standard errors",
        "src/sumosurv/search/choice.py",
        "float(values.std(ddof=1) / math.sqrt(len(values)))",
        "2 * float(values.std(ddof=1) / math.sqrt(len(values)))",
        f"{_SEARCH}::test_size_is_the_largest_within_a_standard_error",
    ),
    Fault(
        "a trial's weight decay is ignored",
        "src/sumosurv/search/jobs.py",
        "return job.settings(self.parameters).member(",
        'return job.settings({k: v for k, v in self.parameters.items() if k != "weight_decay"}).member(',
        f"{_SEARCH}::test_each_trial_has_its_own_weight_decay",
    ),
    Fault(
        "a trial's learning rate is ignored",
        "src/sumosurv/search/jobs.py",
        "return job.settings(self.parameters).member(",
        'return job.settings({k: v for k, v in self.parameters.items() if k != "learning_rate"}).member(',
        f"{_SEARCH}::test_each_trial_has_its_own_learning_rate_and_dropout",
    ),
    Fault(
        "a trial's seed does not depend on its number",
        _RUN,
        "np.random.SeedSequence([base, trial, split])",
        "np.random.SeedSequence([base, split])",
        f"{_SEARCH}::test_trials_with_the_same_settings_have_seeds_of_their_own",
    ),
    Fault(
        "folds that are not stratified",
        _RUN,
        "random_state=seed).split(np.arange(len(kind)), kind)",
        "random_state=seed).split(np.arange(len(kind)), np.zeros(len(kind)))",
        f"{_SEARCH}::test_folds_have_the_share_of_events_of_all_rows",
    ),
    Fault(
        "the digest of a study ignores the outcome",
        _ROUNDS,
        "        text.update(record.array().tobytes())\n",
        "",
        f"{_SEARCH}::test_a_stored_study_is_of_its_outcome_too",
    ),
    Fault(
        "the digest of a study ignores events",
        _ROUNDS,
        "record.array().tobytes()",
        "record.time.tobytes()",
        f"{_SEARCH}::test_a_stored_study_is_of_its_outcome_too",
    ),
    # ------------------------------------------------------------------ command line
    Fault(
        "--valid is ignored",
        "src/sumosurv/cli/fit.py",
        "model.fit(X, y, validation_data=validation, **options)",
        "model.fit(X, y)",
        "tests/cli/test_cli.py::test_a_validation_file_decides_when_training_stops",
    ),
    Fault(
        "the rows of --valid are those of training",
        "src/sumosurv/cli/fit.py",
        "held_out = read(arguments.valid, arguments)",
        "held_out = read(arguments.data, arguments)",
        "tests/cli/test_cli.py::test_validation_file_and_categorical",
    ),
    Fault(
        "--seed is ignored",
        "src/sumosurv/cli/methods.py",
        '("random_state", arguments.seed)',
        '("random_state", 0)',
        "tests/cli/test_cli.py::test_the_seed_is_that_of_the_library",
    ),
    Fault(
        "--refit is ignored",
        "src/sumosurv/cli/methods.py",
        '    "refit": "--refit",\n',
        "",
        "tests/cli/test_cli.py::test_options_of_fit_reach_the_model",
    ),
    # ------------------------------------------------------------------ networks
    Fault(
        "the embedding of unseen levels does not start at zero",
        "src/sumosurv/networks/encoders.py",
        "table[:, 0] = 0.0",
        "pass",
        "tests/networks/test_encoders.py::"
        "test_a_level_that_was_never_seen_starts_and_stays_at_the_zero_embedding",
    ),
    Fault(
        "the marginal feature without mid-ranks",
        "src/sumosurv/preprocessing/time.py",
        "0.5 * (before + curve.cdf(places)[0])",
        "curve.cdf(places)[0]",
        "tests/networks/test_time_features.py::test_marginal_takes_ties_at_the_middle_of_their_rise",
    ),
    Fault(
        "the likelihood is not divided by S(0)",
        "src/sumosurv/networks/monotone.py",
        "        if not self.network.anchored:\n            return None\n        return functional",
        "        if self.network.anchored:\n            return None\n        return functional",
        "tests/networks/test_monotone_network.py::test_log_likelihood_is_that_of_the_distribution",
    ),
    Fault(
        "the tail of the likelihood is not divided by S(0)",
        "src/sumosurv/networks/monotone.py",
        "log_survival, log_density = monotone_log_likelihood_terms(h, slope, self.log_start)\n"
        "        return log_survival[:, :, 0], log_density[:, :, 0]",
        "log_survival, log_density = monotone_log_likelihood_terms(h, slope, None)\n"
        "        return log_survival[:, :, 0], log_density[:, :, 0]",
        "tests/networks/test_monotone_network.py::"
        "test_past_the_last_training_time_the_likelihood_has_the_tail_of_the_distribution",
    ),
    Fault(
        "the distribution is not divided by S(0)",
        "src/sumosurv/distributions/monotone.py",
        "        start = self._log_start()\n",
        "        start = None\n",
        "tests/networks/test_monotone_network.py::test_the_anchor_divides_by_the_survival_at_zero",
    ),
)  # fmt: skip


def judge(fault: Fault, copy: Copy, passing: set[str]) -> str:
    """What became of one: "seen", or why not. ``passing`` are tests known to pass on the code as it is."""
    text = (ROOT / fault.path).read_text(encoding="utf-8")
    if text.count(fault.old) != 1:
        return f"STALE: the old text occurs {text.count(fault.old)} times in {fault.path}"
    if fault.test not in passing:
        code, output = copy.run([fault.test], LIMIT)
        if code != 0:
            return f"BROKEN: {fault.test} does not pass on the code as it is\n{output[-600:]}"
        passing.add(fault.test)
    with copy.changed(fault.path, text.replace(fault.old, fault.new)):
        code, output = copy.run([fault.test], LIMIT)
    if code == 1 and any(line.startswith("FAILED") for line in output.splitlines()):
        return "seen"
    return "SURVIVED" if code == 0 else f"UNCLEAR: exit code {code}\n{output[-600:]}"


def main(words: list[str]) -> int:
    """Plant them all, one after the other; exit code 1 if one goes unseen."""
    began = time.monotonic()
    chosen = [fault for fault in FAULTS if all(word.lower() in fault.name.lower() for word in words)]
    preload()
    missed, passing = 0, set[str]()
    with Copy.made() as copy:
        for fault in chosen:
            verdict = judge(fault, copy, passing)
            missed += verdict != "seen"
            print(f"{verdict:9s} {fault.name}", flush=True)
    print(f"{len(chosen)} faults planted, {len(chosen) - missed} seen; {time.monotonic() - began:.0f} s")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
