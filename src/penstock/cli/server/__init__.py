"""Commands for servers: start them, their keys, logs and traffic."""
