"""``python -m graphdsl`` is the command line."""

from graphdsl.cli import main

if __name__ == "__main__":
    main()
