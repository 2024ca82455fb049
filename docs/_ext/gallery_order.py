"""The order of the gallery: from the plain study on, not by the alphabet."""

from pathlib import Path

ORDER = (
    "right_censored_study",
    "regression_for_a_paper",
    "churn_competing_reasons",
    "machines_delayed_entry",
    "comparing_models",
    "gene_expression",
    "images_encoder",
    "sequences_gru",
    "deployment_onnx",
)


class InOrder:
    """A key for sorting: the place of a script in the list above, which must have it."""

    def __init__(self, source: str) -> None:
        self.source = source

    def __call__(self, filename: str) -> int:
        """Its place."""
        return ORDER.index(Path(filename).stem)
