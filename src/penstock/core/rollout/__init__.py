"""How a new generation of an endpoint takes over, and when traffic goes back to the old one."""
