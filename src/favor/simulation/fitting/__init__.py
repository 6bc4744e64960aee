"""Calibrating the simulation: published tables, their traces, and the fit. Used only by benchmarks."""
