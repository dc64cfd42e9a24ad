"""HTTP/2 on the gateway's own loop: its connections, and one request with its answer.

`wire/http2` is the protocol; sockets, time and memory are here. What a request means is a door's:
gRPC's makes exchanges of its own, HTTP's are the files `http_...`, which make `Call`s.
"""
