"""The admin API: what `penstock` commands and operators need besides AWS's operations."""
