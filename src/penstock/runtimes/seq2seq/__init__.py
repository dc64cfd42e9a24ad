"""Encoder-decoder models: texts in, texts out, many requests in one running decode batch.

    request      parameters of a generation, checked
    search       greedy and beam search: logits in, next tokens out, for one request
    rows         caches of all rows, in memory that the compiled decoder reads in place
    model        the compiled encoder and decoder over these rows; weights in huge pages
    fixed        second graphs with fixed sizes, for a lone short text
    decoding     the loop: plans of `core.stepping` carried out on a model

The files come from `penstock.compile.seq2seq.seq2seq`. Tensors of the decoder: `ids` and
`positions` [rows, 1], `source_bias` [rows, 1, 1, source], `past.N` [rows, heads, past, size] and
`cross.N` [rows, heads, source, size] (keys at even N, values at odd, layer by layer); its outputs
are `logits` [rows, vocabulary] and `new_kv` [2 * layers, rows, heads, 1, size]. This folder must
not know tokenizers, texts or processes.
"""
