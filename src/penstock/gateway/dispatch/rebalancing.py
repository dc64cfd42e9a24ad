"""Moves waiting requests from busy copies to a copy that became ready or healthy again.

`core/routing/rebalance.py` decides which copy gives back how many. This class reports changes to it
and sends its calls. A request that a copy gives back is routed again by `retries.py`. After the
last one the copy says that it has given back all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from penstock.core.deployment.deployment import Group
from penstock.core.routing.rebalance import CopyLoad, GiveBack, Rebalancer
from penstock.gateway.dispatch.endpoint_table import Endpoint, EndpointTable
from penstock.gateway.dispatch.link import InstanceLink

_Tell = Callable[[Rebalancer, list[CopyLoad]], tuple[GiveBack, ...]]


class Rebalancing:
    """Rebalancing for all groups of copies of one dispatcher."""

    def __init__(self, table: EndpointTable, links: Mapping[str, InstanceLink]) -> None:
        self._table = table
        self._links = links
        self._machines: dict[tuple[str, Group], Rebalancer] = {}  #: (endpoint, group)

    def routes_changed(self, name: str, gone: Iterable[int]) -> None:
        """An endpoint has new routes or was deleted; `gone`: copies that left the routes."""
        endpoint = self._table.endpoints.get(name)
        groups = endpoint.router.groups() if endpoint is not None else ()
        for key in [key for key in self._machines if key[0] == name and key[1] not in groups]:
            del self._machines[key]
        copies = list(gone)
        for group in groups:
            assert endpoint is not None
            # Requests that they still give back are routed again, but nobody waits for them.
            self._tell(endpoint, group, lambda machine, loads: machine.gone(copies, loads))
            self._tell(endpoint, group, Rebalancer.changed)

    def copies_well(self, instance_id: str) -> None:
        """Copies on an instance may be picked, again or for the first time."""
        for endpoint, group in self._groups_on(instance_id):
            self._tell(endpoint, group, Rebalancer.changed)

    def expects(self, copy: int) -> bool:
        """Whether the copy was asked to give requests back and has not finished."""
        place = self._table.place_of(copy)
        group = place[0].router.group_of(copy) if place is not None else None
        if place is None or group is None:
            return False
        machine = self._machines.get((place[0].name, group))
        return machine is not None and machine.expects(copy)

    def gave_back(self, instance_id: str, copy: int) -> None:
        """A copy has given back everything that it will."""
        place = self._table.place_of(copy)
        group = place[0].router.group_of(copy) if place is not None else None
        if place is not None and place[1] == instance_id and group is not None:
            self._tell(place[0], group, lambda machine, loads: machine.answered(copy, loads))

    def lost(self, instance_id: str) -> None:
        """The connection to an instance is lost: its copies answer no call any more."""
        copies = self._table.copies_on(instance_id)
        for endpoint, group in self._groups_on(instance_id):
            self._tell(endpoint, group, lambda machine, loads: machine.gone(copies, loads))

    def _groups_on(self, instance_id: str) -> list[tuple[Endpoint, Group]]:
        """Each group with a copy on the instance, once, in the order of the copies."""
        found: dict[tuple[str, Group], tuple[Endpoint, Group]] = {}
        for copy in self._table.copies_on(instance_id):
            place = self._table.place_of(copy)
            if place is None or self._table.endpoints.get(place[0].name) is not place[0]:
                continue  # a shadow variant's: its requests are tried once, at one copy
            group = place[0].router.group_of(copy)
            if group is not None:
                found[place[0].name, group] = (place[0], group)
        return list(found.values())

    def _tell(self, endpoint: Endpoint, group: Group, tell: _Tell) -> None:
        machine = self._machines.get((endpoint.name, group))
        if machine is None:
            machine = self._machines[endpoint.name, group] = Rebalancer()
        for action in tell(machine, endpoint.router.loads(group)):
            place = self._table.place_of(action.copy)
            link = self._links.get(place[1]) if place is not None else None
            if link is not None:
                link.tell({"op": "give-back", "copy": action.copy, "count": action.requests})
