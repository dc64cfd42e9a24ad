"""The page at `/metrics`, its push over OTLP, and the reference of metrics."""
