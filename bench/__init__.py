"""Benchmarks: `python bench/run.py` measures Strandline against controls and peers."""
