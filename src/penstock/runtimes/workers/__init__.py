"""Our worker processes, which run code from artifacts: start, messages, deaths and restarts.

This folder has what all of them share, on the instance's side (`process`, `supervised`) and inside
(`inside`, `failures`, `wire`). It must not know what a worker computes, nor who calls it.
"""
