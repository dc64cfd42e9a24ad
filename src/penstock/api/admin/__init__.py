"""The admin API: what `penstock` commands and operators ask for beside AWS's operations."""
