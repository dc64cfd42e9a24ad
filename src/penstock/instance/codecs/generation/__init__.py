"""Bodies of text generation, one module per dialect: what is asked, and how the answer is written.

    calls               what every dialect becomes, and what an answer gathers
    tgi                 Text Generation Inference's JSON, SageMaker's usual shape
    openai_chat         /v1/chat/completions
    openai_completions  /v1/completions
    triton_generate     Triton's generate and generate_stream
    triton_tensors      the Open Inference Protocol's tensors
    select              which of them a request speaks

Pure: bytes and events in, bytes out. They know no queue, frame or engine.
"""
