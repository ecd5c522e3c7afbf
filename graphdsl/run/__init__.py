"""Turns a planned definition into a `GraphExec` on a device, launches it, and updates it by name."""
