"""Every metric that is published, as data: names, units, dimensions, meaning."""
