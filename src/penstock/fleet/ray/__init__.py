"""Instances on the nodes of a Ray cluster.

fleet.py     the fleet: instances from the request for one to its end
placing.py   room for an instance on a node, and nodes from Ray's autoscaler where there is none
starting.py  the instance on its node: its start, with a certificate and its settings, then its log,
             its end, and the notes about its models
cluster.py   every call to Ray: no other file imports it
"""
