"""What this machine's GPU, driver and CUDA toolkit can do together."""

from __future__ import annotations

import functools
import glob
import os
import re
import shutil

from door import tree
from door.console import answers, say

HOPPER = "90a-real"
OLDEST = (8, 0)  # compute capability required by kernels that do not need Hopper
FIRST = (12, 5)  # first version of CUDA with cudaGetDriverEntryPointByVersion
DRIVERS = {
    12: "525",
    13: "580",
}  # oldest driver branch for each major version of CUDA, whose minor versions are compatible


def nvidia_smi(*options: str) -> str:
    return answers(shutil.which("nvidia-smi") or "/usr/lib/wsl/lib/nvidia-smi", *options) or ""


def query() -> tuple[str, tuple[int, int], str] | None:
    """Returns (name, compute capability, driver version) of the first GPU, or None."""
    rows = nvidia_smi("--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader").splitlines()
    found = re.fullmatch(r"(.+?), *(\d+)\.(\d+), *(\S+)", rows[0].strip()) if rows else None
    return (found[1], (int(found[2]), int(found[3])), found[4]) if found else None


def is_there() -> bool:
    return bool(glob.glob("/dev/nvidia[0-9]*")) or query() is not None


def obstacle(name: str, capability: tuple[int, int], driver: str, nvcc: str) -> str:
    """Returns the reason why kernels cannot be built for and run on this GPU; empty if they can."""
    if capability < OLDEST:
        return f"{name} has compute capability {capability[0]}.{capability[1]}, and kernels need 8.0 or newer"
    if not os.access(nvcc, os.X_OK):
        return f"found a GPU ({name}) but no CUDA toolkit: install the toolkit to use it"
    version = re.search(r"release (\d+)\.(\d+)", answers(nvcc, "--version") or "")
    release = (int(version[1]), int(version[2])) if version else FIRST
    major = release[0]
    toolkit = f"the CUDA toolkit {version[1]}.{version[2]}" if version else "the CUDA toolkit"
    if release < FIRST:
        return f"{toolkit} is too old: install version {FIRST[0]}.{FIRST[1]} or newer"
    reported = re.search(r"CUDA (?:UMD )?Version *: *(\d+)\.", nvidia_smi())
    needed = DRIVERS.get(major, "")
    too_old = int(reported[1]) < major if reported else int(driver.partition(".")[0]) < int(needed or 0)
    if too_old:
        return (
            f"the driver {driver} of {name} is too old for {toolkit}: install "
            + (f"driver {needed} or newer" if needed else "a newer driver")
            + ", or an older toolkit"
        )
    if f"compute_{capability[0]}{capability[1]}\n" not in (answers(nvcc, "--list-gpu-arch") or "") + "\n":
        number = ".".join(map(str, capability))
        return f"{toolkit} does not support {name} (compute capability {number}): install a newer toolkit"
    return ""


@functools.cache
def architecture() -> str:
    """Returns the architectures to compile for, in CMake's spelling. Empty if everything runs in the simulator; if
    there is a GPU, prints why."""
    if not is_there():
        return ""
    gpu = query()
    nvcc = os.environ.get("CUDACXX") or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    why = (
        obstacle(*gpu, nvcc)
        if gpu
        else "there is an NVIDIA GPU, but nvidia-smi does not describe it: is its driver installed?"
    )
    if not gpu or why:
        say(f"{why[0].upper()}{why[1:]}. Kernels run in the simulator.")
        return ""
    os.environ["CUDACXX"] = nvcc
    name, (major, minor), _ = gpu
    if (major, minor) == (9, 0):
        return HOPPER
    numbers = " ".join(chapter[:2] for chapter in tree.for_any_gpu())
    say(
        f"{name} (compute capability {major}.{minor}): chapters {numbers} run on it; the others need Hopper (9.0) or no "
        "GPU, so they run on the CPU, in the simulator."
    )
    return f"{major}{minor}-real"


def preset(chapter: str = "", cuda: bool = True) -> str:
    """Returns the preset, gpu or sim, that builds a chapter or, without one, everything outside the chapters."""
    arch = architecture() if cuda else ""
    return "gpu" if arch and (arch == HOPPER or not chapter or chapter in tree.for_any_gpu()) else "sim"
