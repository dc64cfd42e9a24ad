"""Where instances come from: processes of this machine, or actors on a Ray cluster."""
