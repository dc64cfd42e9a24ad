"""A copy that hosts the target models of a multi-model endpoint: each a copy of its own, loaded
when it is called. Which are loaded is `core.residency`'s to say; what a copy or a runtime is made
of is nothing to this room."""
