#!/usr/bin/env python3
"""Tests how ./flashbook installs missing packages, with fake package managers and without a network. bare_root.py uses
real ones."""

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from door import packages

TOOLS = ("bash sh env sed cat tail cut find touch mkdir sleep timeout sort readlink rm ln tr printf").split()
MANAGERS = {
    "apt-get": "apt-get install -y g++ libgtest-dev",
    "dnf": "dnf install -y gcc-c++ gtest-devel",
    "pacman": "pacman -S --needed --noconfirm gcc gtest",
    "brew": "brew install gcc googletest",
}


class Packages(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.tree, self.tools = self.folder / "tree", self.folder / "tools"
        shutil.copytree(ROOT / "door", self.tree / "door", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "flashbook", self.tree)
        (self.tree / "cmake").mkdir()
        shutil.copy(ROOT / "cmake/packages.cmake", self.tree / "cmake")
        (self.tree / "chapters/01_first").mkdir(parents=True)
        self.tools.mkdir()
        for name in TOOLS:
            (self.tools / name).symlink_to(shutil.which(name))
        self.tool("sudo", 'echo "sudo $*" >>calls\n[ "$1" = -n ] && shift\nexec "$@"')
        self.tool("true", "exit 0")
        libraries = os.environ.get("LD_LIBRARY_PATH", "")  # Python may be in the build folder
        self.tool("python3", f'LD_LIBRARY_PATH={shlex.quote(libraries)} exec {shlex.quote(sys.executable)} "$@"')

    def tool(self, name, text):
        (self.tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.tools / name).chmod(0o755)

    def manager(self, name, code=0):
        self.tool(
            name,
            'case "$*" in *print-uris*) echo "\'file:/mirror/dists/x/InRelease\' x" && exit ;; esac\n'
            f'echo "{name} $*" >>calls\nexit {code}',
        )
        self.tool("apt-config", "exit 0")

    def call(self, *words, before=()):
        return subprocess.run([*before, *words], cwd=self.tree, env={"PATH": str(self.tools), "HOME": str(self.folder)},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    def calls(self):
        """Returns the calls to package managers, without apt's settings."""
        text = (self.tree / "calls").read_text() if (self.tree / "calls").exists() else ""
        return [re.sub(r"(-q|-o \S+) ", "", line.replace(str(self.tree), "")) for line in text.splitlines() if not line.startswith("sudo")]

    def test_commands_of_the_manager_that_is_here_or_of_all(self):
        said = self.call("door/install", "--commands", "compiler", "GoogleTest").stdout
        self.assertEqual([line.strip() for line in said.splitlines()], list(MANAGERS.values()))
        for name, command in MANAGERS.items():
            self.manager(name)
            self.assertEqual(self.call("door/install", "--commands", "compiler", "GoogleTest").stdout.strip(), command)
            (self.tools / name).unlink()

    def test_every_manager_installs_without_a_question_where_there_is_no_terminal(self):
        for name, command in MANAGERS.items():
            self.manager(name)
            done = self.call("door/install", "to test", "compiler", "GoogleTest")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"with {name} to test\n", done.stderr)
            asked = [call.replace("--no-install-recommends ", "") for call in self.calls()]
            self.assertEqual(asked, (["apt-get update"] if name == "apt-get" else []) + [command])
            (self.tree / "calls").unlink()
            (self.tools / name).unlink()

    def test_lists_are_fetched_once(self):
        self.manager("apt-get")
        for _ in range(2):
            self.assertEqual(self.call("door/install", "to test", "cmake").returncode, 0)
        self.assertEqual([call.split()[1] for call in self.calls()], ["update", "install", "install"])

    def test_a_manager_that_fails_is_asked_once_more_with_fresh_lists(self):
        self.manager("apt-get")
        self.assertEqual(self.call("door/install", "to test", "cmake").returncode, 0)
        self.tool(
            "apt-get",
            (self.tools / "apt-get")
            .read_text()
            .partition("\n")[2]
            .replace("exit 0", 'case "$*" in *install*) exit 1 ;; esac'),
        )
        (self.tree / "calls").unlink()
        self.assertEqual(self.call("door/install", "to test", "cmake").returncode, 1)
        self.assertEqual([call.split()[1] for call in self.calls()][:3], ["install", "update", "install"])

    def test_a_refusal_without_a_network(self):
        alone = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-root-user"]
        if not shutil.which("unshare") or subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
            self.skipTest("this container may not make a namespace without a network")
        self.manager("apt-get")
        self.tool("apt-get", "echo \"'http://mirror.example/debian/dists/x/InRelease' x\"")
        (self.tools / "unshare").symlink_to(shutil.which("unshare"))
        began = time.monotonic()
        done = self.call("./flashbook", "run", before=alone)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(
            "flashbook: a C++20 compiler, CMake 3.24, Ninja, CLI11 and nlohmann-json are missing and could not be "
            "installed. Install them and run "
            "this again:\n  apt-get install -y g++ cmake ninja-build libcli11-dev nlohmann-json3-dev\n",
            done.stderr,
        )
        used = time.monotonic() - began
        self.assertLess(used, 20)  # on a busy machine; bare_root.py tests the limit of two seconds

    def test_where_packages_come_from_in_which_order(self):
        """Each source of packages has some that the previous one lacks."""
        asked, lacking = [], [["cmake", "CLI11"], ["cmake", "CLI11"], ["CLI11"]]
        said = io.StringIO()

        def answers(host):
            asked.append((host,))
            return True

        with (
            mock.patch.multiple(packages, missing=lambda _: lacking.pop(0),
                                install=lambda _, *names: asked.append(("system", *names)),
                                from_pypi=lambda names: asked.append(("PyPI", *names)), has_network=lambda: True,
                                host_answers=answers),
            contextlib.redirect_stderr(said),
        ):
            packages.need("to test", packages.PROGRAMS)
        self.assertEqual(asked, [("system", "cmake", "CLI11"), ("PyPI", "cmake"), ("github.com",)])
        self.assertIn("downloading CLI11 from github.com into the build folder, for at most 15 seconds",
                      said.getvalue())

    def test_archives_that_cannot_be_reached_are_not_waited_for(self):
        with (
            mock.patch.multiple(packages, missing=lambda _: ["CLI11"], install=lambda *_: False,
                                has_network=lambda: True, host_answers=lambda _: False),
            contextlib.redirect_stderr(io.StringIO()) as said,
            self.assertRaises(SystemExit) as refused,
        ):
            packages.need("to test", packages.PROGRAMS)
        self.assertEqual(refused.exception.code, 2)
        self.assertIn("CLI11 is missing and could not be installed", said.getvalue())

    def test_what_is_optional_is_left_out(self):
        with (
            mock.patch.multiple(packages, missing=lambda _: ["numpy"], install=lambda *_: False),
            contextlib.redirect_stderr(io.StringIO()) as said,
        ):
            packages.need("to test", packages.TESTS, ["numpy"])
        self.assertIn("Without numpy, everything that needs it is left out", said.getvalue())

    def test_the_python_that_has_the_modules(self):
        self.assertEqual(self.call("door/python", "json").stdout, f"{self.tools}/python3\n")
        self.assertEqual(self.call("door/python", "no_such_module").returncode, 1)
        (self.tools / "python3").unlink()
        self.tool("python3", "exit 1")
        if Path("/usr/bin/python3").exists():
            self.assertEqual(self.call("door/python", "json").stdout, "/usr/bin/python3\n")

    def test_what_is_missing(self):
        with mock.patch.dict(os.environ, {"PATH": str(self.tools)}):
            os.environ.pop("CXX", None)
            self.assertEqual(packages.missing(packages.TESTS), list(packages.TESTS))
            self.tool("g++", "echo missing GoogleTest")
            self.tool("cmake", "echo cmake version 3.22.1")
            self.assertEqual(packages.missing(packages.TESTS), ["cmake", "ninja", "GoogleTest"])


if __name__ == "__main__":
    unittest.main()
