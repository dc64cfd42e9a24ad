"""HTTP/2 on the server's side (RFC 9113, RFC 7541), without sockets, clocks or logs.

    connection    `Http2Connection`, which a driver uses: bytes to events, answers to bytes
    receiving     what the client's frames do: requests and bodies
    control_frames    resets, windows, settings, pings
    state         what these share: streams, windows, allowances, the ways a stream ends
    events        what `receive` returns
    spec          the bounds of a connection, each with its reason
    allowance     a budget that useful frames and time refill: what a flood runs out of
    request_head  a header block into a request; the rules for fields
    hpack         header compression, and `huffman`, its code for strings
    frames        constants and the frame head

Decision 0032 says why this is not the `h2` package; tests hold the two against each other.
"""
