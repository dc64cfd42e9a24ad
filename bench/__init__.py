"""Benchmarks: one file per performance claim. `make bench NAME=gateway` runs `bench/gateway.py`."""
