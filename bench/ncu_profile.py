#!/usr/bin/env python3
"""Shows a GPU's counters for a chapter's kernels, in the columns of the traced simulator (flashbook profile).

    ncu_profile.py --run PROGRAM [--json FILE] [OPTIONS]  runs a chapter's program under Nsight Compute, prints a table per kernel, writes FILE
    ncu_profile.py COUNTERS.csv [JSON]                    the same for existing counters

COUNTERS.csv is the output of `ncu --csv --print-units base --metrics ...`. Only the first launch of each kernel and grid counts. Counters are per
kernel; the simulator counts line by line, but has no caches.
"""

import argparse
import csv
import json
import pathlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

# access: the metric for a warp's instructions, and that for their sectors or wavefronts
COUNTERS = {
    "global load": (("smsp__inst_executed_op_global_ld.sum",), "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"),
    "global load by cp.async": (("smsp__inst_executed_op_ldgsts.sum",), "sm__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts.sum"),
    "global store": (("smsp__inst_executed_op_global_st.sum",), "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"),
    # ldmatrix has its own instruction counter, but its wavefronts are counted among those of loads.
    "shared load": (("smsp__inst_executed_op_shared_ld.sum", "smsp__inst_executed_op_ldsm.sum"),
                    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"),
    "shared store": (("smsp__inst_executed_op_shared_st.sum",), "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"),
}
DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
UNITS = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}


def metrics() -> list[str]:
    return [name for requests, units in COUNTERS.values() for name in (*requests, units)] + list(DRAM)


def kernels(text: str) -> list[dict[str, Any]]:
    """Returns [{kernel, grid, values}] for the first launch of every kernel and grid. Lines before the table's head are ncu's
    messages."""
    lines = text.splitlines()
    head = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in csv.DictReader(lines[head:]):
        entry = found.setdefault((row["Kernel Name"], row["Grid Size"]), {"id": row["ID"], "values": {}})
        if entry["id"] == row["ID"] and row["Metric Value"] != "n/a":  # a counter that this GPU does not have
            entry["values"][row["Metric Name"]] = float(row["Metric Value"].replace(",", "")) * UNITS.get(row["Metric Unit"], 1)
    return [{"kernel": kernel, "grid": grid, "values": entry["values"]} for (kernel, grid), entry in found.items()]


def rows(values: Mapping[str, float]) -> Iterator[tuple[str, int, str, str]]:
    """Yields (access, requests, unit, units per request) of the kernel's accesses."""
    for access, (names, units) in COUNTERS.items():
        if requests := sum(values.get(name, 0) for name in names):
            unit = "sectors" if access.startswith("global") else "wavefronts"
            yield access, int(requests), unit, f"{values[units] / requests:.2f}" if units in values else "-"


def main(counters: str, target: str | None = None) -> int:
    found = kernels(pathlib.Path(counters).read_text())
    if not found:
        print(f"{counters} has no counters: see ncu's messages in it", file=sys.stderr)
        return 2
    for kernel in found:
        print(f"{kernel['kernel'].split('(')[0]}, grid {kernel['grid']}")
        print(f"  {'access':23}  {'requests':>10}  {'unit':10}  {'per request':>11}")
        for access, requests, unit, each in rows(kernel["values"]):
            print(f"  {access:23}  {requests:10}  {unit:10}  {each:>11}")
        read, written = (kernel["values"].get(name, 0) / 1e6 for name in DRAM)
        print(f"  device memory: {read:.2f} MB read, {written:.2f} MB written\n")
    if target:
        pathlib.Path(target).write_text(json.dumps(found, indent=1) + "\n")
    return 0


def count(program: pathlib.Path, words: list[str]) -> int:
    """Runs the program under Nsight Compute and stores the counters with the build's other reports. --json is for the program's own numbers."""
    ncu = shutil.which("ncu") or shutil.which("/usr/local/cuda/bin/ncu")
    if not ncu:
        print("Nsight Compute (ncu) is missing: install it with the CUDA toolkit, or use --no-cuda to count in the simulator",
              file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--json")
    own, options = parser.parse_known_args(words)
    counters = program.parents[1] / "reports" / f"{program.name}.ncu.csv"
    counters.parent.mkdir(exist_ok=True)
    command = [ncu, "--csv", "--print-units", "base", "--metrics", ",".join(metrics()), "--log-file", str(counters), str(program), "--check", "off",
               "--reps", "1", *options]
    print("$ " + shlex.join(command), file=sys.stderr, flush=True)
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
        print(f"ncu failed, see {counters}; ERR_NVGPUCTRPERM in it means that only root may read counters on this machine", file=sys.stderr)
        return 2
    return main(str(counters), own.json)


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "--run":
        sys.exit(count(pathlib.Path(sys.argv[2]), sys.argv[3:]))
    elif len(sys.argv) in (2, 3):
        sys.exit(main(*sys.argv[1:]))
    else:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
