"""Outcomes: what was observed of each subject, and the arrays that users make."""

from sumosurv.outcome.cells import Cells
from sumosurv.outcome.making import Surv
from sumosurv.outcome.reading import as_pandas, check_outcome
from sumosurv.outcome.record import OUTCOME_DTYPE, Outcome, SurvArray, each_field

__all__ = ["OUTCOME_DTYPE", "Cells", "Outcome", "Surv", "SurvArray", "as_pandas", "check_outcome", "each_field"]
