"""Bodies of text generation, one module per dialect: reading requests and writing answers.

    calls               the request that every dialect becomes, and the collected answer
    tgi                 Text Generation Inference's JSON, SageMaker's usual shape
    openai_chat         /v1/chat/completions
    openai_completions  /v1/completions
    openai_responses    /v1/responses
    openai_tokens       /tokenize, /detokenize
    openai_parameters   what becomes of each parameter of these; openai_messages: messages, checked
    triton_generate     Triton's generate and generate_stream
    triton_tensors      the Open Inference Protocol's tensors
    select              finds the dialect of a request

Pure: bytes and events in, bytes out. They know no queue, frame or engine.
"""
