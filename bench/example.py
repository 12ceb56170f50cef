#!/usr/bin/env python3
"""Runs a program of python/examples and describes the machine in its result file as the other programs here do.

    example.py train_text|longer_context [OPTION...]
"""

import importlib
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "python"), str(ROOT / "python" / "examples")]  # the packages, for python3 bench/example.py

from bench import race


def main() -> None:
    import torch
    import train_text  # type: ignore[import-not-found]

    from flashbook import _library

    race.torch = torch
    name = sys.argv.pop(1)
    sys.argv[0] = f"{name}.py"
    train_text.machine = lambda: race.context(race.Library(_library.path()))
    importlib.import_module(name).main()


if __name__ == "__main__":
    main()
