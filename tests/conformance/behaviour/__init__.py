"""Asks the driver of the GPU at hand for every rule that it has, and writes down what it says.

``python -m tests.conformance.behaviour`` tries every rule on the GPU, each trial in a process of its own, and writes
``docs/gpu/driver-behaviour.json`` and the page made of it, ``docs/driver-behaviour.md``. With ``--render`` only the
page is made, without a GPU. ``trials.py`` says what a trial is; the modules in ``TRIAL_MODULES`` hold them, each for
one section of the page.
"""
