"""Instances on the nodes of a Ray cluster.

fleet.py     the fleet: instances from the wish for one to its end
placing.py   room for an instance on a node, and nodes from Ray's autoscaler where there is none
starting.py  the instance's start on its node, which gets a certificate and its settings
watching.py  its log and its end, and what it noted of its models
held.py      what the fleet knows of one instance
cluster.py   every call of Ray's: no other file knows it
"""
