"""vLLM: language models on accelerators, as an engine of `generation`.

Its process may be another interpreter, so this folder imports no more than `generation` does.
"""
