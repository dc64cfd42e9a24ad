"""An engine with a table of times instead of a model, for testing everything around models.

The parts that engines share (prompts, answers, the process around them) are in `generation`.
"""
