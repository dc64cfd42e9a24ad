"""`penstock cost`: the report as a table and as a page."""
