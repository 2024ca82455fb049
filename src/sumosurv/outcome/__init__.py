"""Outcomes: what was observed of each subject, and the arrays that users make."""

from sumosurv.outcome.inputs import Surv, as_pandas, check_outcome
from sumosurv.outcome.record import OUTCOME_DTYPE, Cells, Outcome, SurvArray, each_field

__all__ = ["OUTCOME_DTYPE", "Cells", "Outcome", "Surv", "SurvArray", "as_pandas", "check_outcome", "each_field"]
