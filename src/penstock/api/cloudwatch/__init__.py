"""CloudWatch: its operations on metrics; those on alarms lie in `alarms/`."""
