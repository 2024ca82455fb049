"""Outcomes: what was observed of each subject, and the arrays that users make."""

from sumosurv.outcome.record import OUTCOME_DTYPE, Cells, Outcome, SurvArray, each_field
from sumosurv.outcome.surv import Surv, as_pandas, check_outcome

__all__ = ["OUTCOME_DTYPE", "Cells", "Outcome", "Surv", "SurvArray", "as_pandas", "check_outcome", "each_field"]
