"""The build backend of scikit-build-core, with the target machine in the version of a wheel.

The suffix +sim stands for the simulator, +cu13 for GPU kernels compiled by nvcc 13. A source distribution has no suffix
and can build both.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scikit_build_core import build
from scikit_build_core.build import build_sdist, get_requires_for_build_editable, get_requires_for_build_sdist, get_requires_for_build_wheel

__all__ = ["build_editable", "build_sdist", "build_state", "build_wheel", "dynamic_metadata", "get_requires_for_build_editable",
           "get_requires_for_build_sdist", "get_requires_for_build_wheel", "prepare_metadata_for_build_editable", "prepare_metadata_for_build_wheel"]

MACHINE = "cmake.define.FLASHBOOK_MACHINE"
_state = {"suffix": "", "build": ""}


def suffix_of(machine: str, nvcc: str | None) -> str:
    """Returns the suffix of the version: +sim, or +cu and nvcc's major version."""
    if machine == "sim":
        return "+sim"
    found = re.search(r"release (\d+)\.", subprocess.run([nvcc or "nvcc", "--version"], capture_output=True, text=True, check=True).stdout)
    assert found is not None, "nvcc --version reports no release"
    return f"+cu{found[1]}"


def with_machine(config_settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the settings with an explicit machine, so that CMake and the version agree."""
    settings = dict(config_settings or {})
    nvcc = os.environ.get("CUDACXX") or shutil.which("nvcc")
    asked = settings.get(MACHINE, "auto")
    machine = ("gpu" if nvcc else "sim") if asked == "auto" else str(asked)
    if machine not in ("gpu", "sim"):
        raise ValueError(f"FLASHBOOK_MACHINE is {machine}: pass gpu, sim or auto")
    _state["suffix"] = suffix_of(machine, nvcc)
    return settings | {MACHINE: machine}


def build_wheel(folder: str, config_settings: Mapping[str, Any] | None = None, metadata: str | None = None) -> str:
    return str(build.build_wheel(folder, with_machine(config_settings), metadata))


def build_editable(folder: str, config_settings: Mapping[str, Any] | None = None, metadata: str | None = None) -> str:
    return str(build.build_editable(folder, with_machine(config_settings), metadata))


def prepare_metadata_for_build_wheel(folder: str, config_settings: Mapping[str, Any] | None = None) -> str:
    return str(build.prepare_metadata_for_build_wheel(folder, with_machine(config_settings)))


def prepare_metadata_for_build_editable(folder: str, config_settings: Mapping[str, Any] | None = None) -> str:
    return str(build.prepare_metadata_for_build_editable(folder, with_machine(config_settings)))


# ---- scikit-build-core's interface for dynamic metadata ----------------------------------------------------------------------------


def build_state(state: str) -> None:
    _state["build"] = state


def dynamic_metadata(settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, str]:
    return {"version": cmake_version() + ("" if _state["build"] == "sdist" else _state["suffix"])}


def cmake_version() -> str:
    """Returns the version of the CMake project, which is one folder up, or in `book` inside a source distribution."""
    python = Path(__file__).resolve().parents[1]
    project = next(folder for folder in (python / "book", python.parent) if (folder / "CMakeLists.txt").is_file())
    found = re.search(r"^project\(flashbook VERSION (\S+)", (project / "CMakeLists.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, f"{project}/CMakeLists.txt has no version"
    return found[1]
