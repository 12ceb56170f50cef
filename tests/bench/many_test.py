"""Runs bench/many.py in the simulator: every contestant on four ranks is checked and timed, and an interrupted file is continued.

many_test.py PROGRAM
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from bench import results
from bench.names import Name

SMALL = ["--program", sys.argv[1], "--ranks", "4", "--heads", "2", "--head-dim", "128", "--rounds", "1", "--who", "ch10"]


def many(*options):
    return subprocess.run([sys.executable, ROOT / "bench" / "many.py", *SMALL, *options], capture_output=True, text=True, check=False,
                          env=os.environ | {"FLASHBOOK_COMMIT": "0123abc"})


with tempfile.TemporaryDirectory() as folder:
    out = pathlib.Path(folder, "many.json")
    done = many("--seqlen", "128", "--mask", "causal", "--out", out)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert found["context"]["machine"] == "simulator" and found["context"]["cards"] == "4"
    entries = {entry["name"]: entry for entry in found["benchmarks"]}
    assert "many/ch05/persistent/bf16/d128/causal_p4h2/n128" in entries
    for step in ("all_gather", "ring", "zigzag", "carried", "ulysses"):
        entry = entries[f"many/ch10/{step}/bf16/d128/causal_p4h2/n128"]
        assert entry["real_time"] > 0 and entry["share"] > 0 and entry["error"] <= entry["error_bound"], entry
        assert entry["ranks"] == 4 and Name.parse(entry["name"]).variant == step
        if step == "ring":
            continue
        by_nccl = entries[f"many/ch10/{step}_nccl/bf16/d128/causal_p4h2/n128"]
        assert "NCCL needs GPUs" in by_nccl["error_message"], by_nccl
    assert entries["many/ch10/zigzag_striped/bf16/d128/causal_p4h2/n128"]["share"] > 0
    assert entries["machine/hop/copies_1mb"]["real_time"] > 0 and entries["machine/hop/copies_40x1mb"]["real_time"] > 0
    done = many("--seqlen", "144", "--mask", "documents,decode", "--out", out)  # documents of 4 to 32 tokens
    assert done.returncode == 0, done.stderr
    entries = {entry["name"]: entry for entry in json.loads(out.read_text())["benchmarks"]}
    for kind, alone, all_ranks in (("documents", "ch09/varlen", ("carried", "carried_striped", "all_gather", "ulysses")), ("decode", "ch08/equal_work", ("decode",))):
        for who in (alone, *(f"ch10/{step}" for step in all_ranks)):
            entry = entries[f"many/{who}/bf16/d128/{kind}_p4h2/n144"]
            assert entry["real_time"] > 0 and entry["error"] <= entry["error_bound"], entry
    before = out.read_text()
    done = many("--seqlen", "128", "--mask", "causal", "--out", out)  # all were done before
    assert done.returncode == 0 and out.read_text() == before, done.stderr
    done = many("--seqlen", "64", "--mask", "full", "--seconds", "0", "--resume", "--out", out)
    assert done.returncode == 75 and "not started" in done.stdout and out.read_text() == before, done.stdout
    done = many("--seqlen", "64", "--mask", "full", "--out", out)
    assert done.returncode == 0 and len(json.loads(out.read_text())["benchmarks"]) > len(entries)
    try:
        results.read(out)
        sys.exit("results.py takes the simulator's times")
    except results.Refused as reason:
        assert "simulator" in str(reason)

# Invalid options are rejected before anything runs.
assert many("--mask", "striped").returncode == 2
assert many("--ranks", "0").returncode == 2
