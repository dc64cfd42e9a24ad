"""Text generation in processes of its own: one engine process per copy, several kinds of engine.

    base            requests, sampling settings, results of a step, the `GenerationEngine` protocol
    wire            messages between an instance and an engine process
    prompts         tokenizer and chat template
    answers         what a step made as events; tokens to text piece by piece, stop strings
    json_grammar, json_patterns    a JSON schema as a grammar
    tool_formats    function calls in a model's text, by family
    engine_process  the loop: take requests, step, send what the step made
    runtime         the instance's end: starts the process, and restarts it when it died
    engine_init     settings and environment that the process gets when it starts
    adapter_files, adapter_base    a LoRA adapter's files; whether it fits its base's weights

The engines are in folders beside this one: `openvino_genai`, `vllm`, and `paced`, which computes
nothing and takes its times from a table.

Code inside the engine process imports the standard library, `penstock.errors`, a tokenizer and its
engine, nothing else: it may run in another interpreter than the instance's. This folder must not
know clients' dialects, pipelines or Python models.
"""
