"""How the simulation is calibrated: published tables, their traces, and the fit. Only benchmarks use it."""
