"""Application Auto Scaling: targets, policies, scheduled actions and activities."""
