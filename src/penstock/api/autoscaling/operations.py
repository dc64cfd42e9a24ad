"""The served operations of Application Auto Scaling by name."""

from __future__ import annotations

from types import MappingProxyType

from penstock.api.autoscaling import policies, schedules, targets
from penstock.api.aws import Operation

OPERATIONS: MappingProxyType[str, Operation] = MappingProxyType(
    {
        "RegisterScalableTarget": targets.register_scalable_target,
        "DescribeScalableTargets": targets.describe_scalable_targets,
        "DeregisterScalableTarget": targets.deregister_scalable_target,
        "PutScalingPolicy": policies.put_scaling_policy,
        "DescribeScalingPolicies": policies.describe_scaling_policies,
        "DeleteScalingPolicy": policies.delete_scaling_policy,
        "DescribeScalingActivities": targets.describe_scaling_activities,
        "PutScheduledAction": schedules.put_scheduled_action,
        "DescribeScheduledActions": schedules.describe_scheduled_actions,
        "DeleteScheduledAction": schedules.delete_scheduled_action,
        "TagResource": targets.tag_resource,
        "UntagResource": targets.untag_resource,
        "ListTagsForResource": targets.list_tags_for_resource,
    }
)
