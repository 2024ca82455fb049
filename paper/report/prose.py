"""The sentences of the pages of results; numbers come from the records."""

from __future__ import annotations

__all__ = ["BASELINES", "CALIBRATION", "INTRO", "MIXTURE", "SELECTION", "SUPPORT", "TIME", "WINDOW"]

INTRO = """# The paper reproduced: scores

Every method of the paper, tuned and scored by the same code on the same five folds of four real datasets. Settings are
chosen on the validation rows of each fold, and the chosen model is scored once on the test rows. Entries are means ±
standard deviations over folds ({split}), with the paper's values in small print. The paper uses
different folds, and its SuMo-net is the trial that scores best *on the test rows*, which is optimistic.

`{command}` makes this page and [the page on time](results_time.md)
from the [records]({records}). `python -m paper table3 --stored` prints one table in full; `paper/README.md` lists
the names."""

BASELINES = """Our baselines are stronger than the paper's: of {count} rows of other methods in Table 3, {better} have
a higher S_L here. The code released with the paper never passed the searched weight decay of the baselines to their
optimiser, computed their IBS and IBLL on an even grid instead of their own times, scaled inputs differently for
likelihoods than for training, and placed most events in DeepHit's first interval. Here all networks share the
preprocessing, the search space (`space="recipe"`), the mixture of the best trials and the refit on training and
validation rows together. Three things differ: the number of trials, given in the tables; the number of networks in the
refit ({members});
and the time origin, which only SuMo-net may choose. Methods without networks are fitted to training and validation rows
together."""

WINDOW = """A step curve has no density. As in the paper, the density is interpolated over a window of k = 2 steps on
either side (rows with \\*). It need not integrate to one, and a wider window can inflate the likelihood.
`python -m paper table3 --stored` adds the likelihood of the same curve with a piecewise constant density, and
`python -m paper likelihood-k --stored` has k = 1, 4 and 8, as in the paper's appendix."""

SUPPORT = """On SUPPORT there are no events before the third day: patients who died earlier were not enrolled. The
search of SuMo-net may therefore choose the smallest time as time origin (`time_origin="first"`), and does so by
validation likelihood ({chosen}). This raises S_L on the first day, which many rows share.
The likelihood of the whole day, which a spike in the density cannot raise, is {interval} instead of {density}. All
subjects are tied at the time origin, which lowers concordance."""

PEARSON = """The p-values of D-calibration of {methods} are those of Pearson's test, which hardly ever rejects if rows
are censored; all others are of the [test corrected for censoring](scores_evidence.md#calibration)."""

CALIBRATION = """The calibration curves of the paper's score lie above the diagonal for every method, as they would for
the true distribution, because the score treats censored times as events. D-calibration allows for censoring by
spreading censored rows according to the model's own curve. If most rows are censored, as in FLCHAIN, it has little
power."""

SELECTION = """Each grey dot is one trial on one fold. The best trial on validation rows is partly lucky, and the best
trial on test rows cannot be known in advance. A mixture of many good trials does well on both."""

MIXTURE = """The size of the mixture is the largest that is within one standard error of the best size on validation
rows. Networks with the settings in the mixture are then refitted to training and validation rows together."""

TIME = """# The paper reproduced: time

Prediction, training and search times of every method, from the [records]({records}).
[The page on scores](results.md) has the protocol; [speed](performance.md) compares the default with other software."""
