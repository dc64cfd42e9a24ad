"""vLLM: language models on accelerators, as an engine of `generation`.

Its process may be another interpreter, so nothing here imports more than `generation` does.
"""
