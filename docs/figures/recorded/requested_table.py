#!/usr/bin/env python3
"""Compares the requests that the simulator counts with a chapter's model, and updates the table in the chapter's appendix.

    requested_table.py [--write] PROGRAM PAGE

PROGRAM is the traced program of a chapter that has such a model (build/sim/bin/03_flash_attention_1_traced), PAGE its appendix.md, which
has the table between <!-- table requested --> and <!-- /table -->. Exit code 1 if a step's requests differ from the model by 2 % or more,
or if the table differs from the page; --write fixes the latter.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from docs.tools import pages
from docs.tools.pages import row

TOLERANCE = 0.02
HEAD_DIMS = (64, 128)
SHAPE = ("--batch", "1", "--heads", "1", "--seqlen", "512", "--dtype", "bf16")


def profile(program: Path, head_dim: int) -> Any:
    """Returns the steps, from the traced program's report."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "profile.json"
        subprocess.run([program, *SHAPE, "--head-dim", str(head_dim), "--check", "off", "--json", file], check=True, stdout=subprocess.DEVNULL)
        return json.loads(file.read_text())["steps"]


def requested(step: dict[str, Any]) -> Any:
    return sum(launch[f"bytes_requested_{way}"] for launch in step["launches"] for way in ("read", "written"))


def main(write: bool, program: Path, page: Path) -> int:
    table = row("step", "$d$", "model, MB", "counted, MB", "difference") + row(*["--:"] * 5)
    failed = False
    for head_dim in HEAD_DIMS:
        for step in profile(program, head_dim):
            counted, model = requested(step), step["requested_model_bytes"]
            difference = counted / model - 1
            table += row(str(step["step"]), str(head_dim), f"{model / 1e6:.2f}", f"{counted / 1e6:.2f}", f"{abs(difference):.1%}")
            if abs(difference) > TOLERANCE:
                print(f"step {step['step']}, head_dim {head_dim}: {counted} bytes requested, {model:.0f} by the model: {difference:+.1%}",
                      file=sys.stderr)
                failed = True
    if not pages.update(page, {"table": lambda _: table}, check=not write, expected=["table requested"]):
        print(f"update the table with bench/requested.py --write {program} {page}", file=sys.stderr)
        failed = True
    return int(failed)


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--write"]
    if len(words) != 2:
        sys.exit(__doc__)
    sys.exit(main("--write" in sys.argv, Path(words[0]).resolve(), Path(words[1])))
