"""Rules about where the blocks of a launch run: clusters, and cooperative grids; codes GD215 to GD221."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from graphdsl.check.context import Context
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule
from graphdsl.check.subjects import Launches, sentences
from graphdsl.compile.occupancy import blocks_of_multiprocessor
from graphdsl.declare.attributes import Cluster, LaunchAttributes
from graphdsl.declare.limits import Limits

if TYPE_CHECKING:
    from graphdsl.compile.image import KernelImage


@rule("GD215", "error", "Clusters that the device has", subject="launch")
def cluster_size(context: Launches, found: Found) -> Iterator[Finding]:
    """A cluster has at least one block in each dimension and at most 16 in all, on a device that has clusters: from
    compute capability 9.0 on. Clusters of more than 8 blocks do not run on every such device; the kernel is allowed
    them when it is instantiated.

    **Why.** The driver refuses the attribute with `CUDA_ERROR_INVALID_CLUSTER_SIZE`. It refuses clusters for which no
    group of multiprocessors has the shared memory, too, which cannot be told before.

    **Source.** CUDA C++ Programming Guide, "Thread Block Clusters".

    **Remedy.** Use smaller clusters, or none for older devices.

    **Wrong**

    ```python wrong
    g.kernel(scale, grid=32, block=32, args=(x, y, gain, n), cluster=32)
    ```

    **Right**

    ```python right
    g.kernel(scale, grid=32, block=32, args=(x, y, gain, n), cluster=8)
    ```
    """
    limits = context.limits
    most = limits.max_cluster
    if most:
        wrong, remedy = f"on {limits.name}, a cluster has 1 to {most} blocks", "Use smaller clusters."
    else:
        wrong = f"{limits.name} has no clusters"
        remedy = "Leave the cluster out for this device: clusters begin with compute capability 9.0."
    for launch in context.launches:
        for field, dims in _clusters(launch.attributes, launch.image):
            if not 1 <= min(dims) <= math.prod(dims) <= most:
                for node in launch.nodes:
                    yield found(wrong, node=node, field=field, value=dims, remedy=remedy)


@rule("GD216", "error", "Clusters that fill the grid", subject="launch")
def cluster_divides(context: Launches, found: Found) -> Iterator[Finding]:
    """Each dimension of a cluster divides that of the grid; a grid that follows a param stays so with every update.

    **Why.** The driver refuses the attribute, or the update, with `CUDA_ERROR_INVALID_CLUSTER_SIZE`.

    **Source.** CUDA Driver API, `CUlaunchAttributeValue::clusterDim`.

    **Remedy.** Round the grid up to whole clusters, and let the kernel ask whether it has work:
    `grid=gd.cdiv(n, 256 * 2) * 2`.

    **Wrong**

    ```python wrong
    g.kernel(scale, grid=gd.cdiv(n, 300), block=300, args=(x, y, gain, n), cluster=8)
    ```

    **Right**

    ```python right
    g.kernel(scale, grid=gd.cdiv(n, 300 * 8) * 8, block=300, args=(x, y, gain, n), cluster=8)
    ```
    """
    for launch in context.launches:
        for field, dims in _clusters(launch.attributes, launch.image):
            if _divides(dims, launch.grid):
                continue
            for node in launch.nodes:
                yield found(
                    f"each dimension of a cluster divides that of the grid, and the grid is {launch.grid}",
                    node=node,
                    field=field,
                    value=dims,
                    remedy=sentences(
                        context.origin(*getattr(node, "grid", ())), "Round the grid up to whole clusters, with cdiv."
                    ),
                )


@rule("GD217", "error", "Preferred clusters that are made of regular ones")
def preferred_cluster(context: Context, found: Found) -> Iterator[Finding]:
    """A preferred cluster stands beside a regular one: a multiple of it in x and y, and the same in z. Devices have
    preferred clusters from compute capability 10.0 on.

    **Why.** The device falls back on regular clusters where the larger ones do not fit. The driver refuses what is
    wrong with `CUDA_ERROR_INVALID_VALUE`.

    **Source.** CUDA Driver API, `CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION`.

    **Remedy.** Give both, such as `cluster=2, preferred_cluster=4`, and for older devices the regular one alone.

    **Wrong**

    ```python wrong
    g.kernel(scale, grid=12, block=256, args=(x, y, gain, n), preferred_cluster=4)
    ```

    **Right**

    ```python right
    g.kernel(scale, grid=12, block=256, args=(x, y, gain, n), cluster=4)
    ```
    """
    for node, attributes in context.attributed:
        preferred, regular = attributes.preferred_cluster, attributes.cluster
        if preferred is None or 0 in preferred:
            continue
        if not context.limits.preferred_clusters:
            rule = f"{context.limits.name} has no preferred clusters"
            remedy = "Leave it out for this device: preferred clusters begin with compute capability 10.0."
        elif regular is None:
            rule, remedy = "a preferred cluster needs a regular one to fall back on", "Give cluster= too."
        elif 0 in regular or (_divides(regular, preferred) and preferred[2] == regular[2]):
            continue
        else:
            rule = f"a preferred cluster is a multiple of the regular one, {regular}, in x and y, and equal in z"
            remedy = "Choose a multiple."
        yield found(rule, node=node, field="preferred_cluster", value=preferred, remedy=remedy)


@rule("GD218", "error", "The clusters that a kernel was compiled for", subject="launch")
def compiled_cluster(context: Launches, found: Found) -> Iterator[Finding]:
    """A kernel that was compiled for clusters of one size (`__cluster_dims__` in CUDA C++) is launched with those, or
    with none and gets them. One that must run in clusters is given some, and launch bounds are kept.

    **Why.** The driver refuses other clusters.

    **Source.** PTX ISA, `.reqnctapercluster`, `.explicitcluster` and `.maxclusterrank`.

    **Remedy.** Give the cluster that the kernel was compiled for, or leave it to the kernel.

    **Wrong**

    ```python wrong
    @cuda.jit(launch_bounds=(256, 1, 2))
    def paired(y):
        y[cuda.grid(1)] = 1.0

    g.kernel(paired, grid=4, block=256, args=y, cluster=4)
    ```

    **Right**

    ```python right
    @cuda.jit(launch_bounds=(256, 1, 2))
    def paired(y):
        y[cuda.grid(1)] = 1.0

    g.kernel(paired, grid=4, block=256, args=y, cluster=2)
    ```
    """
    remedy = "Give the cluster that it was compiled for, or compile it for another."
    for launch in context.launches:
        for field, dims, wrong in _not_compiled_for(launch.attributes, launch.image):
            for node in launch.nodes:
                yield found(wrong, node=node, field=field, value=dims, remedy=remedy)


@rule("GD219", "error", "A cooperative grid that runs at once", subject="launch")
def cooperative_grid(context: Launches, found: Found) -> Iterator[Finding]:
    """All blocks of a cooperative grid run at once: there are no more of them than the multiprocessors hold, with the
    threads, registers and shared memory that a block needs.

    The count is the driver's own, but for clusters, where it is an upper bound: how multiprocessors hang together is
    not published. For a compute capability without a device it is that of the largest device that has it.

    **Why.** The driver refuses the attribute, or the update, with `CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE`: blocks
    that wait for others that never start would hang.

    **Source.** CUDA Driver API, `cuLaunchCooperativeKernel`; CUDA toolkit, cuda_occupancy.h.

    **Remedy.** Use a smaller grid, and let each thread do more: `for i in range(cuda.grid(1), n, cuda.gridsize(1))`.

    **Wrong**

    ```python wrong
    g.kernel(scale, grid=100_000, block=256, args=(x, y, gain, n), cooperative=True)
    ```

    **Right**

    ```python right
    g.kernel(scale, grid=128, block=256, args=(x, y, gain, n), cooperative=True)
    ```
    """
    limits = context.limits
    for launch in context.launches:
        attributes = launch.attributes
        if attributes is None or not attributes.cooperative:
            continue
        if not limits.cooperative:
            for node in launch.nodes:
                yield found(
                    f"{limits.name} has no cooperative launches",
                    node=node,
                    field="cooperative",
                    value=True,
                    remedy="Split the kernel in two nodes where it waits for the grid.",
                )
            continue
        blocks, threads = _product(launch.grid), _product(launch.block)
        # What no block can have is reported as such.
        if blocks is None or threads is None or not 1 <= threads <= limits.max_threads:
            continue
        if launch.shared_bytes is None or launch.shared_bytes < 0:
            continue
        most = _resident_blocks(limits, threads, launch.shared_bytes, launch.image, _cluster(attributes, launch.image))
        if most is not None and blocks > most:
            for node in launch.nodes:
                yield found(
                    f"the blocks of a cooperative grid run at once, and {limits.multiprocessors} multiprocessors of "
                    f"{limits.name} hold {most} such blocks, not {blocks}",
                    node=node,
                    field="grid",
                    value=launch.grid,
                    remedy=sentences(
                        context.origin(*getattr(node, "grid", ())), "Use a smaller grid whose threads do more each."
                    ),
                )


@rule("GD220", "error", "A kernel that waits for its grid in a cooperative launch", subject="launch")
def grid_synchronisation(context: Launches, found: Found) -> Iterator[Finding]:
    """A kernel that calls `cuda.cg.this_grid().sync()` is launched with `cooperative=True`.

    **Why.** In another launch there is nothing to wait by, and the launch fails with `CUDA_ERROR_LAUNCH_FAILED`.

    **Source.** CUDA C++ Programming Guide, "Grid Synchronization".

    **Remedy.** Give `cooperative=True`, or split the kernel in two nodes there.

    **Wrong**

    ```python wrong
    @cuda.jit
    def twice(x, y):
        i = cuda.grid(1)
        y[i] = x[i]
        cuda.cg.this_grid().sync()
        x[i] = y[x.size - 1 - i]

    g.kernel(twice, grid=4, block=256, args=(x, y))
    ```

    **Right**

    ```python right
    @cuda.jit
    def twice(x, y):
        i = cuda.grid(1)
        y[i] = x[i]
        cuda.cg.this_grid().sync()
        x[i] = y[x.size - 1 - i]

    g.kernel(twice, grid=4, block=256, args=(x, y), cooperative=True)
    ```
    """
    for launch in context.launches:
        image = launch.image
        if image is not None and image.placement.syncs_grid and not _is_cooperative(launch.attributes):
            for node in launch.nodes:
                yield found(
                    f"{image.name} waits for all blocks of its grid, which only a cooperative launch can",
                    node=node,
                    field="cooperative",
                    value=False,
                    remedy="Give cooperative=True, or split the kernel in two nodes there.",
                )


@rule("GD221", "warning", "A cluster policy beside a cluster", subject="launch")
def cluster_policy(context: Launches, found: Found) -> Iterator[Finding]:
    """A policy for the blocks of clusters is given to a node that has clusters.

    **Why.** It would do nothing.

    **Remedy.** Give `cluster=` too, or leave the policy out.

    **Wrong**

    ```python wrong
    g.kernel(scale, grid=4, block=256, args=(x, y, gain, n), cluster_policy="spread")
    ```

    **Right**

    ```python right
    g.kernel(scale, grid=4, block=256, args=(x, y, gain, n), cluster=2, cluster_policy="spread")
    ```
    """
    for launch in context.launches:
        attributes = launch.attributes
        if attributes is None or attributes.cluster_policy is None or _cluster(attributes, launch.image):
            continue
        for node in launch.nodes:
            yield found(
                "a policy for the blocks of clusters does nothing without clusters",
                node=node,
                field="cluster_policy",
                value=attributes.cluster_policy,
                remedy="Give cluster= too, or leave it out.",
            )


def placement_fits(
    grid: Sequence[int],
    threads: int,
    shared_bytes: int,
    limits: Limits,
    image: KernelImage,
    attributes: LaunchAttributes | None,
) -> bool:
    """True if the rules about launches here would find nothing: the same question, where only the answer counts.

    The launch fits in all else.
    """
    placement = image.placement
    if attributes is None and placement.cluster is None:
        return not placement.needs_cluster and not placement.syncs_grid
    cluster = _cluster(attributes, image)
    for _, dims in _clusters(attributes, image):
        if not (1 <= min(dims) <= math.prod(dims) <= limits.max_cluster and _divides(dims, grid)):
            return False
    if attributes is not None and attributes.cluster_policy is not None and cluster is None:
        return False
    if any(_not_compiled_for(attributes, image)):
        return False
    if not _is_cooperative(attributes):
        return not placement.syncs_grid
    most = _resident_blocks(limits, threads, shared_bytes, image, cluster)
    return limits.cooperative and (most is None or math.prod(grid) <= most)


def _clusters(attributes: LaunchAttributes | None, image: KernelImage | None) -> Iterator[tuple[str, Cluster]]:
    """The clusters of a launch that are known, by field."""
    cluster = _cluster(attributes, image)
    if cluster is not None:
        yield "cluster", cluster
    if attributes is not None and attributes.preferred_cluster is not None:
        yield "preferred_cluster", attributes.preferred_cluster


def _cluster(attributes: LaunchAttributes | None, image: KernelImage | None) -> Cluster | None:
    """The regular cluster of a launch: its own, or that of the kernel."""
    if attributes is not None and attributes.cluster is not None:
        return attributes.cluster
    return None if image is None else image.placement.cluster


def _divides(dims: Sequence[int], whole: Sequence[int | None]) -> bool:
    """True if no dimension of ``dims`` is known not to divide that of ``whole``."""
    return not any(part > 0 and extent is not None and extent % part for part, extent in zip(dims, whole, strict=True))


def _not_compiled_for(
    attributes: LaunchAttributes | None, image: KernelImage | None
) -> Iterator[tuple[str, Cluster | None, str]]:
    """The clusters of a launch that the kernel does not take, by field, and what it does take."""
    if image is None:
        return
    given, placement = None if attributes is None else attributes.cluster, image.placement
    if given is None and placement.needs_cluster and placement.cluster is None:
        yield "cluster", None, f"{image.name} runs in clusters only, and none is given"
    if given is not None and placement.cluster not in (None, given):
        yield "cluster", given, f"{image.name} was compiled for clusters of {placement.cluster} blocks"
    for field, dims in _clusters(attributes, image):
        if placement.max_cluster is not None and math.prod(dims) > placement.max_cluster:
            yield field, dims, f"the launch bounds of {image.name} allow clusters of {placement.max_cluster} blocks"


def _is_cooperative(attributes: LaunchAttributes | None) -> bool:
    return attributes is not None and attributes.cooperative


def _resident_blocks(
    limits: Limits, threads: int, shared_bytes: int, image: KernelImage | None, cluster: Cluster | None
) -> int | None:
    """Blocks that a device holds at once, whole clusters of them; None for a block that none can hold."""
    held = blocks_of_multiprocessor(limits, threads, shared_bytes, image)
    if not held:
        return None  # which the rules about blocks report
    most = limits.multiprocessors * held
    size = math.prod(cluster) if cluster else 1
    return most // size * size if size > 0 else most


def _product(dims: Sequence[int | None]) -> int | None:
    known = [extent for extent in dims if extent is not None]
    return math.prod(known) if len(known) == len(dims) else None
