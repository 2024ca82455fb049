"""The sentences of the page of results; figures come from the records."""

from __future__ import annotations

__all__ = ["BASELINES", "CALIBRATION", "INTRO", "MIXTURE", "SELECTION", "SUPPORT", "WINDOW"]

INTRO = """# Results

Every method of the paper, tuned and scored by the same code on the same five folds of four real datasets. A method's
settings are chosen on the validation rows of each fold; what was chosen is scored once on the test rows
(the test scores of all trials are kept too, but only for the lines *best single trial on test rows* and for Table 5).
No figure on this page was typed by hand: `{command}` writes it from the
[records]({records}), and `python -m paper table3 --stored` (or another name) prints one table.

Means ± standard deviations are over folds ({split}). The paper's figures are beside ours; they are on other
folds, and its SuMo-net is the one trial of many that is best *on the test rows*, which is optimistic."""

BASELINES = """Our baselines are stronger than the paper's: of {count} rows of other methods in Table 3, {better} have
a higher S_L here. In the code released with the paper their weight decay was searched over but never handed to the
optimiser, the times of their curves were replaced by an even grid before IBS and IBLL were taken, their likelihoods
were computed from inputs scaled in another way than in training, and DeepHit's intervals left most events in the first
one. Here every network has the same preparation, the same kind of search (`space="recipe"`, around our defaults), its
best trials are mixed in the same way and their settings are trained a second time. What differs: the number of trials,
which stands in the tables; the networks of the second training ({members}); and the start
of the clock (`time_origin`), which SuMo-net alone may choose. Methods without a network have nothing to choose, and
are fitted to training and validation rows together."""

WINDOW = """Curves that fall in steps have no density. As in the paper it is interpolated over a window of k steps on
either side (rows with \\*). Such a density need not integrate to one, and the width of the window decides how
good it looks: compare the column *as constant*, the same curve read as a density that is constant between steps, and
the tables by k below."""

SUPPORT = """On SUPPORT nobody dies before the third day: by design of the study, those who did were not taken in. The
search of SuMo-net may therefore let the clock start at the smallest time (`time_origin="first"`), and where it does,
validation likelihood has chosen so ({chosen}).
That raises S_L on the first day, which many rows share. How much of it is real shows in *interval*, the likelihood of
the day itself, which no spike can raise: {interval} there against {density}. It also ties all subjects at
that time, where every curve is still 1, which costs concordance."""

CALIBRATION = """The curves of the paper's score lie mostly above the diagonal for every method, as they would for the
truth: censored times count as events there. D-calibration is right for censored rows, which it spreads by the model's
own curve; where most rows are censored, as in FLCHAIN, it therefore has little power to reject."""

SELECTION = """Every grey dot is one trial on one fold: further to the right it is better on validation rows, further
up it is better on test rows. The best trial on validation rows often owes that to luck, and the best on test rows
cannot be known beforehand; a mixture of many good trials is good on both."""

MIXTURE = """The size of the mixture is the largest that is no more than one standard error below the best size on
validation rows. Its settings are then trained again, on training and validation rows together."""
