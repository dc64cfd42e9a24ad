"""Processes of ours that run what an artifact brings: their start, messages, deaths and next start.

Here belongs what all of them share, on the instance's side (`process`, `supervised`) and inside
(`inside`, `failures`, `wire`). It must not know what a worker computes, nor who asks.
"""
