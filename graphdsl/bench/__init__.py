"""What ``graphdsl bench`` runs: the cost of graphs on this machine, beside what the driver and its other users cost.

Every library is measured in a process of its own (`graphdsl.bench.worker`), by the same code
(`graphdsl.bench.measure`), on the same shapes (`graphdsl.bench.shapes`), and wherever it can be launched, with the same
kernel. Only the command line imports this package.
"""
