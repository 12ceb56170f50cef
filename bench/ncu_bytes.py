#!/usr/bin/env python3
"""Holds the bytes that Nsight Compute counted against a chapter's cost model.

    ncu_bytes.py COUNTERS.csv REPORT.json RESULT.json NAME

COUNTERS.csv is what `ncu --csv --print-units base --metrics dram__bytes_read.sum,dram__bytes_write.sum` wrote for a chapter's program,
REPORT.json what that program wrote with --json. The first launch of every kernel is one run of the step; their bytes are summed.
RESULT.json is a result file of this machine: its context stays, its results are replaced by one named NAME (ncu/ch01/step2/...).
Exit code 1 if counters and model differ by more than 15 %.
"""

import csv
import json
import pathlib
import sys

TOLERANCE = 0.15
UNITS = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}


def counted_bytes(text):
    """{kernel: bytes read and written} of the first launch of every kernel. Lines before the table's head are ncu's own messages."""
    lines = text.splitlines()
    head = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    first, total = {}, {}
    for row in csv.DictReader(lines[head:]):
        kernel = row["Kernel Name"] + " " + row["Grid Size"]
        if first.setdefault(kernel, row["ID"]) == row["ID"] and row["Metric Name"].startswith("dram__bytes_"):
            total[kernel] = total.get(kernel, 0) + float(row["Metric Value"].replace(",", "")) * UNITS[row["Metric Unit"]]
    return total


def main(counters, report, result, name):
    kernels = counted_bytes(pathlib.Path(counters).read_text())
    if not kernels:
        print(f"{counters} holds no counters: did ncu fail?", file=sys.stderr)
        return 2
    counted = sum(kernels.values())
    described = json.loads(pathlib.Path(report).read_text())
    (step,) = described["steps"]
    model = step["memory_bytes"]
    for kernel, moved in kernels.items():
        print(f"{moved / 1e9:8.3f} GB  {kernel[:90]}")
    print(f"{counted / 1e9:8.3f} GB counted, {model / 1e9:.3f} GB by the model: {counted / model - 1:+.1%}")

    whole = json.loads(pathlib.Path(result).read_text())
    whole["benchmarks"] = [{"name": name, "run_name": name, "run_type": "iteration", "iterations": 1, "real_time": 0.0, "time_unit": "ms",
                            "bytes": counted, "model_bytes": model, "label": described["shape"]}]
    pathlib.Path(result).write_text(json.dumps(whole, indent=1) + "\n")
    return int(abs(counted / model - 1) > TOLERANCE)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
