#!/usr/bin/env python3
"""What chapter 9's policies say of the tiles of some masks: docs/figures/interactive/mask_tiles_data.js, which mask_tiles.js shows.

    mask_tiles.py [--check] MASK_TILES      with --check nothing is written: exit code 1 if the file differs
"""
import json
import pathlib
import subprocess
import sys

FILE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "figures" / "interactive" / "mask_tiles_data.js"


def main():
    *check, program = sys.argv[1:]
    said = subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout
    now = ("// Tiles of masks as chapter 9's policies class them: tests/docs/mask_tiles.py writes this.\n"
           f"(window.flashbookData ??= {{}}).mask_tiles = {json.dumps(json.loads(said), separators=(',', ':'))};\n")
    if not check:
        FILE.write_text(now)
    elif FILE.read_text() != now:
        sys.exit(f"{FILE.name} is not what the kernels say: {sys.argv[0]} {program} writes it, docs/figures/mask_tiles.py draws it")


if __name__ == "__main__":
    main()
