"""A table of covariates as a matrix of named numbers, for models that are linear or made of trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sumosurv.preprocessing import NumericColumn, Preprocessor

__all__ = ["Design"]


class Design:
    """Columns of numbers as they are, one 0/1 column for each level of a category but the first.

    A missing number becomes the mean of the training rows, with a 0/1 column that says so where the
    training rows had any; a missing category is a level of its own there. Levels not seen in training read
    as the first.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [50.0, 60.0], "sex": ["f", "m"]})
    >>> design = Design(Preprocessor().fit(frame))
    >>> design.names, design.matrix(frame).tolist()
    (['age', 'sex[m]'], [[50.0, 0.0], [60.0, 1.0]])
    """

    def __init__(self, preprocessor: Preprocessor) -> None:
        if preprocessor.row_shape is not None:
            raise ValueError(
                f"This model reads a table of two dimensions; got rows of shape {preprocessor.row_shape}. "
                "A network with encoder= can read such arrays."
            )
        self.preprocessor = preprocessor
        self.names: list[str] = []
        for column in preprocessor.columns:
            if isinstance(column, NumericColumn):
                self.names += [column.name, f"{column.name}[missing]"] if column.indicator else [column.name]
            else:
                self.names += [f"{column.name}[missing]"] if column.missing_seen else []
                self.names += [f"{column.name}[{level}]" for level in column.levels[1:]]

    def matrix(self, X: Any) -> npt.NDArray[np.float64]:
        """Rows of X as rows of numbers, one column per name."""
        numbers, codes = self.preprocessor.table(X)
        columns: list[npt.NDArray[np.float64]] = []
        number = code = 0
        for column in self.preprocessor.columns:
            if isinstance(column, NumericColumn):
                columns.append(numbers[:, number] * column.width + column.centre)
                number += 1
                if column.indicator:
                    columns.append(numbers[:, number])
                    number += 1
                continue
            first = 1 if column.missing_seen else 3  # code 1 is missing, 2 the first level
            wanted = [c for c in range(first, column.n_codes) if c != 2]
            columns += [(codes[:, code] == c).astype(np.float64) for c in wanted]
            code += 1
        return np.stack(columns, axis=1) if columns else np.zeros((len(numbers), 0))
