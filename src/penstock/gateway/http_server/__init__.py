"""The server of the HTTP port, for HTTP/1.1 (`http/`) and HTTP/2 (`http2/`)."""
