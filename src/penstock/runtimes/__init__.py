"""What runs a model: a room for each runtime, with one record of all that others ask about it.

    record, registry    what is known of a runtime; which there are. A name is known nowhere else
    base          what a runtime is to an instance
    loader        description to runtime, nothing heavy before it is asked for
    openvino, onnxruntime, pytorch, seq2seq    in lane threads of the instance
    python, foreign, pipeline                  in processes of their own
    openvino_genai, vllm, paced                likewise, as engines of `generation`
    workers       what processes of ours share: start, messages, deaths, being started again
    confinement   walls between a model's process and the machine

A runtime knows no other but what it is made of, and those in threads know no processes: what two of
them need lies here beside the rooms. Importing a room, or its record, imports no library of models.
"""
