"""The page at `/metrics`, the same numbers pushed over OTLP, and the metrics' reference."""
