"""pandas as it will be: results of to_numpy() are read-only (always so from pandas 3 on)."""

from contextlib import AbstractContextManager, nullcontext

import pandas as pd


def pandas_copy_on_write() -> AbstractContextManager[None]:
    if int(pd.__version__.split(".")[0]) >= 3:
        return nullcontext()
    return pd.option_context("mode.copy_on_write", True)
