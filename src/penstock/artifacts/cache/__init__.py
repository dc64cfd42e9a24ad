"""Unpacked artifacts on disk, each under the digest of its content, for every process."""
