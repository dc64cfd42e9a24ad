"""A copy that hosts the target models of a multi-model endpoint.

Each target model has a copy of its own and is loaded when it is called. `core.residency` decides
which ones are loaded. This folder does not depend on how copies or runtimes work inside.
"""
