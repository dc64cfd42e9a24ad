"""OpenVINO GenAI: language models on CPUs, as an engine of `generation`.

What engines share (prompts, answers, the process around them) is in `generation`.
"""
