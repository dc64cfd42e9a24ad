"""What a region and an orchestrator tell each other, and the orchestrator's own front doors."""
