"""One file per version of the tables, named for what it adds."""
