"""CloudWatch: operations on metrics, and in `alarms/` those on alarms."""
