"""Finds and installs what builds need: with the system's package manager, from its packages unpacked into the build
folder without root (both in door/install), from PyPI, or from the archives pinned in cmake/packages.cmake."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from door.console import ROOT, answers, fail, say, watched

INSTALL = ROOT / "door/install"
FOLDER = ROOT / "build/packages"
HEADERS = {
    "CLI11": "CLI/CLI.hpp",
    "nlohmann-json": "nlohmann/json.hpp",
    "GoogleTest": "gtest/gtest.h",
    "benchmark": "benchmark/benchmark.h",
}
PROGRAMS = ("compiler", "cmake", "ninja", "CLI11", "nlohmann-json")  # what the chapters' programs need
TESTS = (*PROGRAMS, "GoogleTest")
ON_PYPI = ("cmake", "ninja", "nlohmann-json")
IN_ARCHIVES = ("CLI11", "nlohmann-json", "GoogleTest")
CMAKE = (3, 24)
TITLES = {"compiler": "a C++20 compiler", "cmake": "CMake 3.24", "ninja": "Ninja"}


def compiler() -> list[str]:
    """Returns the words of CXX (which may contain options or a launcher), or g++ or clang++; empty if there is none."""
    words = shlex.split(os.environ.get("CXX", "")) or [name for name in ("g++", "clang++") if shutil.which(name)][:1]
    if words and not shutil.which(words[0]):
        fail(f"CXX is '{os.environ['CXX']}', but {words[0]} was not found: unset CXX, or name a compiler")
    return words


def python_with(*modules: str) -> str | None:
    """Returns the path of a Python that has these modules; None if there is none."""
    return (answers(ROOT / "door/python", *modules) or "").strip() or None


def prefixes() -> list[Path]:
    """Returns the prefixes of libraries in the build folder."""
    return [
        path
        for path in (FOLDER / "root/usr", *FOLDER.glob("pypi/lib/python3*/site-packages/nlohmann_json"))
        if path.is_dir()
    ]


def put_first(variable: str, *values: str | Path) -> None:
    known = os.environ.get(variable, "").split(os.pathsep)
    os.environ[variable] = os.pathsep.join(
        [*(str(value) for value in values if str(value) not in known), *filter(None, known)]
    )


def use_folder() -> None:
    """Adds the packages in the build folder to the paths that subprocesses search."""
    for folder in (FOLDER / "root/usr/bin", FOLDER / "pypi/bin"):
        if folder.is_dir():
            put_first("PATH", folder)
    if prefixes():
        put_first("CMAKE_PREFIX_PATH", *prefixes())
    if libraries := sorted(FOLDER.glob("root/usr/lib/*-linux-gnu*")):
        put_first("LD_LIBRARY_PATH", *libraries)


def missing(wanted: Iterable[str]) -> list[str]:
    """Returns the names of missing packages."""
    wanted = list(wanted)
    tests = "".join(
        f"#if !__has_include(<{file}>)\nmissing {name}\n#endif\n" for name, file in HEADERS.items() if name in wanted
    )
    places = [word for path in prefixes() for word in ("-isystem", str(path / "include"))]
    found = answers(*compiler(), *places, "-E", "-P", "-x", "c++", "-", text=tests) if tests and compiler() else tests
    absent = re.findall(r"^missing (\S+)", tests if found is None else found, re.MULTILINE)

    def is_there(name: str) -> bool:
        if name == "compiler":
            return bool(compiler())
        if name == "ninja":
            return bool(shutil.which("ninja"))
        if name == "cmake":
            version = re.search(r"(\d+)\.(\d+)", answers("cmake", "--version") or "")
            return bool(shutil.which("cmake")) and (not version or (int(version[1]), int(version[2])) >= CMAKE)
        return python_with(name) is not None

    return [name for name in wanted if (name in absent if name in HEADERS else not is_there(name))]


def install(why: str, *names: str) -> bool:
    """Installs packages with the system's package manager, or unpacks them in the build folder. Returns whether it worked."""
    sys.stderr.flush()
    return os.spawnvp(os.P_WAIT, str(INSTALL), [str(INSTALL), why, *names]) == 0


def refuse(names: Sequence[str]) -> NoReturn:
    """Exits and prints the commands for this machine's package managers, or for all known ones."""
    titles = [TITLES.get(name, name) for name in names]
    what = " and ".join(filter(None, (", ".join(titles[:-1]), titles[-1])))
    are, them = ("are", "them") if len(names) > 1 else ("is", "it")
    fail(
        f"{what} {are} missing and could not be installed. Install {them} and run this again:\n"
        + (answers(INSTALL, "--commands", *names) or "").rstrip()
    )


def has_network() -> bool:
    """Returns whether this machine has a route to any network."""
    known = [Path(name) for name in ("/proc/net/route", "/proc/net/if_inet6") if Path(name).exists()]
    lines = [
        line.split()
        for path in known
        for line in path.read_text(encoding="utf-8").splitlines()
        if not line.startswith("Iface")
    ]
    return not known or any("lo" not in words for words in lines)


def host_answers(host: str, port: int = 443) -> bool:
    """Returns whether a host answers within a second, including the name lookup. A proxy is assumed to answer."""
    from urllib.request import getproxies  # importing this takes longer than importing all other modules here

    if getproxies():
        return True
    found: list[bool] = []

    def ask() -> None:
        try:
            socket.create_connection((host, port), 1).close()
            found.append(True)
        except OSError:
            pass

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(1)
    return bool(found)


def from_pypi(names: Sequence[str]) -> None:
    venv, log = FOLDER / "pypi", FOLDER / "pypi.log"
    FOLDER.mkdir(parents=True, exist_ok=True)
    say(f"flashbook: installing {' '.join(names)} from PyPI into build/packages")
    if watched(sys.executable, "-m", "venv", venv, busy="still installing", log=log) == 0:
        watched(venv / "bin/pip", "install", "--retries", "1", "--timeout", "5", *names, busy="still installing",
                log=log)


def need(why: str, wanted: Sequence[str], optional: Sequence[str] = ()) -> None:
    """Ensures that everything in `wanted` is installed, or exits. Packages in `optional` may remain missing."""
    use_folder()
    lacking = missing([*wanted, *optional])
    if lacking:
        install(why, *lacking)
        use_folder()
        lacking = missing(lacking)
    if has_network() and "compiler" not in lacking and (names := [name for name in lacking if name in ON_PYPI]):
        from_pypi(names)
        use_folder()
        lacking = missing(lacking)
    required = [name for name in lacking if name in wanted]
    if not required:
        if lacking:
            them = "them" if len(lacking) > 1 else "it"
            say(
                f"Without {' and '.join(lacking)}, everything that needs {them} is left out. To install {them}:\n"
                + (answers(INSTALL, "--commands", *lacking) or "").rstrip()
            )
        return
    hosts = set(re.findall(r"https://([^/\s]+)", (ROOT / "cmake/packages.cmake").read_text(encoding="utf-8")))
    if set(required) - {*IN_ARCHIVES} or not has_network() or not all(map(host_answers, hosts)):
        refuse(required)
    say(
        f"flashbook: downloading {' '.join(required)} from {' '.join(hosts)} into the build folder, for at most 15 "
        "seconds each"
    )
