#!/usr/bin/env python3
"""What chapter 9's policies say of the tiles of some masks, and the rates that were measured under masks of the same kind:
docs/figures/interactive/mask_tiles_data.js, which mask_tiles.js shows.

    mask_tiles.py [--check] MASK_TILES      with --check nothing is written: exit code 1 if the file differs
"""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import results

FILE = ROOT / "docs" / "figures" / "interactive" / "mask_tiles_data.js"
# What bench/masks.py calls masks like these, of 8192 tokens, and who is shown.
LIKE = {"full": "full", "causal": "causal", "sinks": "window", "prefix": "prefix", "causal_documents": "documents"}
WHO = {"ours": "ch09/step3", "flex": "flex"}


def rates(newest, name):
    """TFLOP/s of visible pairs by who was measured."""
    entries = {who: newest.get(f"masked/{path}/bf16/d128/{LIKE.get(name)}/n8192") for who, path in WHO.items()}
    return {who: round(entry.values["FLOPS"] / 1e12) for who, entry in entries.items() if entry and not entry.skipped}


def main():
    *check, program = sys.argv[1:]
    said = subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout
    data, newest = json.loads(said), results.load(results.RESULTS / results.BOOK_GPU).newest
    for mask in data["masks"]:
        if measured := rates(newest, mask["name"]):
            mask["measured"] = measured
    now = ("// Tiles of masks as chapter 9's policies class them, and rates on an H200: tests/docs/mask_tiles.py writes this.\n"
           f"(window.flashbookData ??= {{}}).mask_tiles = {json.dumps(data, separators=(',', ':'))};\n")
    if not check:
        FILE.write_text(now)
    elif FILE.read_text() != now:
        sys.exit(f"{FILE.name} is not what the kernels and the results say: {sys.argv[0]} {program} writes it, docs/figures/mask_tiles.py draws it")


if __name__ == "__main__":
    main()
