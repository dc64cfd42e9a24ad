"""Runtimes: a folder for each, with one record of all that other code asks about it.

    record, registry    what is known of a runtime; which there are. Only they know its name
    base          the interfaces between a runtime and an instance
    loader        description to runtime; imports nothing heavy before it is needed
    openvino, onnxruntime, pytorch, seq2seq    in lane threads of the instance
    python, foreign, pipeline                  in processes of their own
    openvino_genai, vllm, paced                likewise, as engines of `generation`
    workers       what our worker processes share: start, messages, deaths, restarts
    environments  Pythons with packages of a model's own
    confinement   sandbox around a model's process

A runtime knows no other one except those that it is made of, and runtimes in threads know no
processes. What two of them need is in this folder, beside theirs. Importing a folder, or its
record, imports no library of models.
"""
