"""What ``graphdsl bench`` runs: the cost of graphs on this machine, beside what the driver and its other users cost.

Every library is measured in a process of its own (`graphdsl.bench.worker`), by the same code (`graphdsl.bench.measure`),
on the same shapes (`graphdsl.bench.shapes`), and wherever it can, with the same kernel. Nothing here is imported by the
rest of the package but the command line.
"""
