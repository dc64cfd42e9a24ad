"""Every published metric, as data: names, units, dimensions, meaning."""
