"""Formulas in the notation of R."""

from sumosurv.formulas.formula import Formula
from sumosurv.formulas.frame import ModelFrame, model_frame
from sumosurv.formulas.transformer import FormulaTransformer

__all__ = ["Formula", "FormulaTransformer", "ModelFrame", "model_frame"]
