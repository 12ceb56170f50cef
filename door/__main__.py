"""The entry point that the launcher, ./flashbook, runs."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])

from door.cli import main

if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
