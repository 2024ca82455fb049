"""Reproduction of the paper's tables and figures: ``python -m paper NAME`` at the top of the repository.

One module per table or figure, each with ``run(out, ...) -> record``; those that are not made of searches also have
``show(record)``, which prints a stored record.
"""
