"""What runs a model: two shapes (`base`), and a room for each kind of runtime.

    loader        description to runtime, nothing heavy before it is asked for
    openvino, onnxruntime, pytorch, seq2seq    in lane threads of the instance
    python, foreign, pipeline, generation      in processes of their own
    workers       what processes of ours share: start, messages, deaths, being started again
    confinement   walls between a model's process and the machine

A kind of runtime knows no other, and those in threads know no processes: what two of them need lies
here beside the rooms. Importing a room imports no library of models.
"""
