"""Experiments: configuration in, self-contained JSON record out; one module per table or figure."""
