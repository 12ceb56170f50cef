#!/usr/bin/env python3
"""What a GPU counted of a chapter's kernels, in the columns of the traced simulator (flashbook profile).

    ncu_profile.py --metrics            the metrics to ask Nsight Compute for, separated by commas
    ncu_profile.py COUNTERS.csv [JSON]  prints a table a kernel, and writes the same to JSON

COUNTERS.csv is what `ncu --csv --print-units base --metrics ...` wrote. Of launches of the same kernel on the same grid the first counts.
Counters are those of a whole kernel; the simulator has them line by line, and knows no caches.
"""

import csv
import json
import pathlib
import sys

# (memory, access): what a warp's instructions are counted by, and the sectors or wavefronts that they took
COUNTERS = {
    ("global", "load"): ("smsp__inst_executed_op_global_ld.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"),
    ("global", "store"): ("smsp__inst_executed_op_global_st.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"),
    ("shared", "load"): ("smsp__inst_executed_op_shared_ld.sum", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"),
    ("shared", "store"): ("smsp__inst_executed_op_shared_st.sum", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"),
}
DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
UNITS = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}


def metrics():
    return [name for pair in COUNTERS.values() for name in pair] + list(DRAM)


def kernels(text):
    """[{kernel, grid, values}] of the first launch of every kernel and grid. Lines before the table's head are ncu's own messages."""
    lines = text.splitlines()
    head = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    found = {}
    for row in csv.DictReader(lines[head:]):
        entry = found.setdefault((row["Kernel Name"], row["Grid Size"]), {"id": row["ID"], "values": {}})
        if entry["id"] == row["ID"]:
            entry["values"][row["Metric Name"]] = float(row["Metric Value"].replace(",", "")) * UNITS.get(row["Metric Unit"], 1)
    return [{"kernel": kernel, "grid": grid, "values": entry["values"]} for (kernel, grid), entry in found.items()]


def rows(values):
    """(access, requests, unit, units a request) of what the kernel does."""
    for (memory, access), (requests, units) in COUNTERS.items():
        if values.get(requests):
            unit = "sectors" if memory == "global" else "wavefronts"
            yield f"{memory} {access}", int(values[requests]), unit, values.get(units, 0) / values[requests]


def main(counters, target=None):
    found = kernels(pathlib.Path(counters).read_text())
    if not found:
        print(f"{counters} holds no counters: did ncu fail? Its messages are there", file=sys.stderr)
        return 2
    for kernel in found:
        print(f"{kernel['kernel'].split('(')[0]}, grid {kernel['grid']}")
        print(f"  {'access':14}  {'requests':>10}  {'unit':10}  {'a request':>9}")
        for access, requests, unit, each in rows(kernel["values"]):
            print(f"  {access:14}  {requests:10}  {unit:10}  {each:9.2f}")
        read, written = (kernel["values"].get(name, 0) / 1e6 for name in DRAM)
        print(f"  device memory: {read:.2f} MB read, {written:.2f} MB written\n")
    if target:
        pathlib.Path(target).write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--metrics"]:
        print(",".join(metrics()))
    elif len(sys.argv) in (2, 3):
        sys.exit(main(*sys.argv[1:]))
    else:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
