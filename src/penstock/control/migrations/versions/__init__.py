"""One file a version of the tables, named for what it brings."""
