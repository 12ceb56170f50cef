#!/usr/bin/env python3
"""Compares the bytes that Nsight Compute counted with a chapter's models.

    ncu_bytes.py [--tell] COUNTERS.csv REPORT.json RESULT.json NAME

COUNTERS.csv is the output of `ncu --csv --print-units base --metrics ...` for a chapter's program, REPORT.json that program's --json file. The
first launches of all kernels make one run of the step, and their bytes are summed. Two counts are compared: bytes to and from device memory, with
the cost model, and sectors between the multiprocessors and the L2, if the chapter has a model of its requests. RESULT.json is a result file of this
machine. Its context is kept, and its results are replaced by one named NAME (ncu/ch03/split_k/...), except for results of that kind, which are kept
too. Exit code 1 if counters and models differ by more than 15 %; --tell only reports this, for chapter 3's step 3, whose page explains why.
"""

import json
import pathlib
import sys
from collections.abc import Mapping, Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # so that python3 bench/ncu_bytes.py finds the packages

from bench import ncu_profile

TOLERANCE = 0.15
SECTOR = 32  # bytes
MEMORY = ncu_profile.DRAM
# Sectors between the L1 caches and the L2. The L2's own counters are lower, since requests of several multiprocessors for a line are merged.
L2 = ("l1tex__m_xbar2l1tex_read_sectors.sum", "l1tex__m_l1tex2xbar_write_sectors.sum")


def counted_bytes(text: str, metrics: Sequence[str] = MEMORY) -> dict[str, float]:
    """Returns {kernel: bytes counted by these metrics} for the first launch of every kernel."""
    unit = SECTOR if metrics == L2 else 1
    return {f"{found['kernel']} {found['grid']}": unit * sum(found["values"].get(metric, 0) for metric in metrics)
            for found in ncu_profile.kernels(text) if found["values"].keys() & {*metrics}}


def compared(what: str, kernels: Mapping[str, float], model: float) -> float:
    """Prints the measured and the modelled bytes of each kernel; returns the sum."""
    counted = sum(kernels.values())
    for kernel, moved in kernels.items():
        print(f"{moved / 1e9:8.3f} GB {what}  {kernel[:90]}")
    print(f"{counted / 1e9:8.3f} GB {what} counted, {model / 1e9:.3f} GB in the model: {counted / model - 1:+.1%}")
    return counted


def main(counters: str, report: str, result: str, name: str) -> int:
    text = pathlib.Path(counters).read_text()
    if not counted_bytes(text):
        print(f"{counters} has no counters: did ncu fail?", file=sys.stderr)
        return 2
    described = json.loads(pathlib.Path(report).read_text())
    (step,) = described["steps"]
    values: dict[str, float] = {}
    for what, prefix, metrics, model in (("device memory", "", MEMORY, step["memory_bytes"]), ("L2", "l2_", L2, step.get("requested_bytes", 0))):
        kernels = counted_bytes(text, metrics)
        if model and kernels:
            values |= {f"{prefix}bytes": compared(what, kernels, model), f"{prefix}model_bytes": model}
            values[f"{prefix}over_model"] = values[f"{prefix}bytes"] / model - 1

    whole = json.loads(pathlib.Path(result).read_text())
    whole["benchmarks"] = [run for run in whole["benchmarks"] if run["name"].startswith("ncu/") and run["name"] != name]
    whole["benchmarks"].append({"name": name, "run_name": name, "run_type": "iteration", "iterations": 1, "real_time": 0.0,
                                "time_unit": "ms", **values, "label": described["shape"]})
    pathlib.Path(result).write_text(json.dumps(whole, indent=1) + "\n")
    return int(any(abs(value) > TOLERANCE for key, value in values.items() if key.endswith("over_model")))


if __name__ == "__main__":
    if len(words := [word for word in sys.argv[1:] if word != "--tell"]) == 4:
        code = main(*words)
        sys.exit(0 if code == 1 and "--tell" in sys.argv else code)
    else:
        sys.exit(__doc__)
