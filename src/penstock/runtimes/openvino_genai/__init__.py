"""OpenVINO GenAI: language models on CPUs, as an engine of `generation`.

The parts that engines share (prompts, answers, the process around them) are in `generation`.
"""
