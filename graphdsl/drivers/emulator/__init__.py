"""A device in Python: graphs run on a machine with no GPU, checked access by access. Not for speed."""

from graphdsl.drivers.emulator.driver import Emulator as Emulator
