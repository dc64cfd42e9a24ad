"""Where artifacts lie and how their bytes arrive: this machine, buckets, HTTP, another server."""
