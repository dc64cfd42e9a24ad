"""When things are due: cron expressions, rates and moments, on the clock of a time zone."""
