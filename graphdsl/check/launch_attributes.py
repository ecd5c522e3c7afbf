"""Rules about launch attributes that no grid decides: access policies, domains, priorities; codes GD222 to GD224."""

from __future__ import annotations

from collections.abc import Iterator

from graphdsl.check.context import Context
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule


@rule("GD222", "error", "An access policy that the device takes")
def access_policy(context: Context, found: Found) -> Iterator[Finding]:
    """The window of an access policy has at least one byte and no more than the device takes; the ratio of hits is from
    0 to 1; and what is no hit is normal or streaming.

    **Why.** The driver refuses the attribute with `CUDA_ERROR_INVALID_VALUE`.

    **Source.** CUDA Driver API, `CUaccessPolicyWindow`, `CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE`.

    **Remedy.** Take a smaller part of the array, or leave the policy out.

    **Wrong**

    ```python wrong
    policy = gd.AccessPolicy(x, hit_ratio=0.6, miss="persisting")
    g.kernel(scale, grid=4, block=256, args=(x, y, gain, n), access_policy=policy)
    ```

    **Right**

    ```python right
    policy = gd.AccessPolicy(x, hit_ratio=0.6, hit="persisting", miss="streaming")
    g.kernel(scale, grid=4, block=256, args=(x, y, gain, n), access_policy=policy)
    ```
    """
    limits = context.limits
    for node, attributes in context.attributed:
        policy = attributes.access_policy
        if policy is None:
            continue
        if not 1 <= policy.nbytes <= limits.window_bytes:
            yield found(
                f"on {limits.name}, the window of an access policy has 1 to {limits.window_bytes} bytes"
                if limits.window_bytes
                else f"{limits.name} has no access policies",
                node=node,
                field="access_policy",
                value=f"{policy.nbytes} bytes",
                remedy="Slice the part that is used most, or leave the policy out for this device.",
            )
        if not 0 <= policy.hit_ratio <= 1:
            yield found(
                "the ratio of hits is from 0 to 1",
                node=node,
                field="access_policy.hit_ratio",
                value=policy.hit_ratio,
                remedy="Pass the part of the window that hits, such as 0.6.",
            )
        if policy.miss == "persisting":
            yield found(
                "what is no hit is normal or streaming",
                node=node,
                field="access_policy.miss",
                value=policy.miss,
                remedy='Pass miss="streaming", or let all of the window hit.',
            )


@rule("GD223", "error", "Memory synchronisation domains that the device has")
def sync_domains(context: Context, found: Found) -> Iterator[Finding]:
    """The domains that `default` and `remote` stand for are among those of the device: 0 to 3 from compute capability
    9.0 on, and 0 alone before.

    **Why.** The driver refuses the attribute with `CUDA_ERROR_INVALID_VALUE`.

    **Source.** CUDA C++ Programming Guide, "Memory Synchronization Domains".

    **Remedy.** Use domains that there are, or leave the map out: the driver's own is 0 and 1.

    **Wrong**

    ```python wrong
    domains = {"default": 0, "remote": 4}
    g.kernel(scale, grid=4, block=256, args=(x, y, gain, n), sync_domain="remote", sync_domain_map=domains)
    ```

    **Right**

    ```python right
    domains = {"default": 0, "remote": 3}
    g.kernel(scale, grid=4, block=256, args=(x, y, gain, n), sync_domain="remote", sync_domain_map=domains)
    ```
    """
    count = context.limits.sync_domains
    for node, attributes in context.attributed:
        given = attributes.sync_domain_map
        if given is not None and not all(0 <= domain < count for domain in given):
            yield found(
                f"{context.limits.name} has {count} memory synchronisation domain{'s' if count > 1 else ''}, numbered "
                "from 0",
                node=node,
                field="sync_domain_map",
                value=given,
                remedy="Use domains that there are, or leave the map out.",
            )


@rule("GD224", "warning", "Priorities that the device has")
def priority(context: Context, found: Found) -> Iterator[Finding]:
    """A priority is in the range of the device, from 0 down to -5 on most; the smaller number is the higher priority.

    **Why.** The driver takes the nearest that the device has, so two priorities may become one.

    **Source.** CUDA Driver API, `cuCtxGetStreamPriorityRange`.

    **Remedy.** Use the range; there are no more steps than that.

    **Wrong**

    ```python wrong
    g.kernel(scale, grid=4, block=256, args=(x, y, gain, n), priority=-100)
    ```

    **Right**

    ```python right
    g.kernel(scale, grid=4, block=256, args=(x, y, gain, n), priority=-5)
    ```
    """
    least, greatest = context.limits.priorities
    for node, attributes in context.attributed:
        given = attributes.priority
        if given is not None and not greatest <= given <= least:
            yield found(
                f"{context.limits.name} has priorities from {least} (least) to {greatest} (greatest), and takes the "
                "nearest",
                node=node,
                field="priority",
                value=given,
                remedy="Choose one in range.",
            )
