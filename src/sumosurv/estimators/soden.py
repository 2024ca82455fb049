"""SODEN: survival regression by an ordinary differential equation for the cumulative hazard."""
