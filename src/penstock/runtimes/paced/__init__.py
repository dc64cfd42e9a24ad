"""An engine with a table of times instead of a model, for trying out everything around models.

What engines share (prompts, answers, the process around them) is in `generation`.
"""
