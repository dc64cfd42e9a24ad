"""What tests of several folders are made of: servers, sites, clients, models, kills, virtual time.
One subject per file. A helper of one folder's tests stays in that folder, and no rule is tested
here; which file is for what, docs/hacking.md says in a table."""
