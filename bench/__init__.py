"""Benchmarks of llmc, as ratios to a floor measured in the same run: `python -m bench`."""
