"""Text generation in processes of its own: one engine process per copy, several kinds of engine.

    base            requests, sampling settings, what a step yields, the `GenerationEngine` protocol
    wire            messages between an instance and an engine process
    prompts         tokenizer and chat template
    texts           tokens to text piece by piece, stop strings
    engine_process  the loop: take requests, step, send what the step made
    runtime         the instance's end: starts the process, starts it again when it died
    engine_init     what the process is told when it starts
    adapter_files, adapter_base    a LoRA adapter's files; whether it fits weights beside it

The engines are beside it: `openvino_genai`, `vllm`, and `paced`, which computes nothing and keeps
the times of a table.

What runs inside the engine process imports the standard library, `penstock.errors`, a tokenizer
and its engine, nothing else: it may be another interpreter than the instance's. The room must not
know clients' dialects, pipelines or Python models.
"""
