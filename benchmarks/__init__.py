"""Measurements of this project beside its peers: `python -m benchmarks` runs them all."""
