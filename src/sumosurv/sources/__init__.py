"""Rows that are read in pieces, so that they need not fit into memory; and what is learned of them in one pass."""

from sumosurv.sources.blocks import Block, Source, StoredRows, as_source, in_memory, take_rows
from sumosurv.sources.roles import Roles
from sumosurv.sources.sketches import (
    LevelSketch,
    Moments,
    OutcomeSketch,
    QuantileSketch,
    RowSample,
    hashed,
    row_sample,
    uniform,
)
from sumosurv.sources.source import RowSource, check_no_duplicates, check_present, digest_of
from sumosurv.sources.tables import open_table, read_parquet, read_table, write_parquet, write_table

__all__ = [
    "Block",
    "LevelSketch",
    "Moments",
    "OutcomeSketch",
    "QuantileSketch",
    "Roles",
    "RowSample",
    "RowSource",
    "Source",
    "StoredRows",
    "as_source",
    "check_no_duplicates",
    "check_present",
    "digest_of",
    "hashed",
    "in_memory",
    "open_table",
    "read_parquet",
    "read_table",
    "row_sample",
    "take_rows",
    "uniform",
    "write_parquet",
    "write_table",
]
