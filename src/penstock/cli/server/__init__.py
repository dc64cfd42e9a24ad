"""Commands for servers: start and configure them, their keys, logs and traffic."""
