"""``python docs/examples/smollm2 "prompt"``: see `smollm2.cli`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # the folder that has the package, not the package itself

    from smollm2.cli import main

    sys.exit(main())
