"""Measurement of a pair: rounds, replicates and their costs, on a CPU and on a GPU."""
