#!/usr/bin/env python3
"""Runs python/examples/train_text.py and describes the machine in its result file as the other programs here do."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "python"), str(ROOT / "python" / "examples")]  # so that python3 bench/example.py finds the packages


def main() -> None:
    import torch
    import train_text  # type: ignore[import-not-found]

    from bench import race
    from flashbook import _library

    race.torch = torch
    train_text.machine = lambda: race.context(race.Library(_library.path()))
    train_text.main()


if __name__ == "__main__":
    main()
