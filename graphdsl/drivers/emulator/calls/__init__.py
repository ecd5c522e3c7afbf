"""The driver calls of the emulator in groups: each a class on top of the state that all of them work on."""
