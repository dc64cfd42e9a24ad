"""Commands for the time before a deployment: compile models, make packages, tune settings."""
