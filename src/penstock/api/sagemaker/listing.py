"""The parameters that all List operations share, as a query of the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.control.store.records import ListQuery


def list_query(params: Mapping[str, Any]) -> ListQuery:
    """SageMaker's defaults: newest first, ten a page."""
    return ListQuery(
        name_contains=params.get("NameContains", ""),
        created_before=params.get("CreationTimeBefore"),
        created_after=params.get("CreationTimeAfter"),
        modified_before=params.get("LastModifiedTimeBefore"),
        modified_after=params.get("LastModifiedTimeAfter"),
        status_equals=params.get("StatusEquals", ""),
        sort_by=params.get("SortBy", "CreationTime"),
        sort_order=params.get("SortOrder", "Descending"),
        max_results=params.get("MaxResults", 10),
        next_token=params.get("NextToken", ""),
    )


def page_of(member: str, rows: list[dict[str, Any]], next_token: str) -> dict[str, Any]:
    """A List result; NextToken only where there is a next page."""
    return {member: rows} | ({"NextToken": next_token} if next_token else {})
