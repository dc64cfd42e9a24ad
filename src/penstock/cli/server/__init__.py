"""Servers from the shell: started, configured, their keys, logs and traffic."""
