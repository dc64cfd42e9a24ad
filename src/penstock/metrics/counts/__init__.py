"""What is counted where requests pass, and how counts of several processes become one."""
