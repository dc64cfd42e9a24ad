"""What a region tells and is told as one of several behind an orchestrator."""
