#!/usr/bin/env python3
"""What kernels and library do, as figures show it: a program says it, docs/figures/interactive/PROGRAM_data.js keeps it.

    recorded_data.py [--check] PROGRAM      with --check nothing is written: exit code 1 if the file differs
"""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
INTERACTIVE = ROOT / "docs" / "figures" / "interactive"
WHAT = {"backward_round": "A block of chapter 7's step 4, as the simulator ran it", "decode_cache": "Pages and plans as chapter 8's library makes them",
        "mask_tiles": "Tiles of masks as chapter 9's policies class them"}


def main():
    *check, program = sys.argv[1:]
    name = pathlib.Path(program).name
    said = subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout
    now = (f"// {WHAT[name]}: tests/docs/recorded_data.py writes this.\n"
           f"(window.flashbookData ??= {{}}).{name} = {json.dumps(json.loads(said), separators=(',', ':'))};\n")
    file = INTERACTIVE / f"{name}_data.js"
    if not check:
        file.write_text(now)
    elif file.read_text() != now:
        sys.exit(f"{file.name} is not what the program says: {sys.argv[0]} {program} writes it, docs/figures/{name}.py draws it")


if __name__ == "__main__":
    main()
