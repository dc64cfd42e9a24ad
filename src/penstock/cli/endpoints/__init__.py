"""Endpoints and their models from the shell: deployed, applied, invoked, explained, deleted."""
