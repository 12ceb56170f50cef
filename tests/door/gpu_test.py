#!/usr/bin/env python3
"""Tests which GPUs ./flashbook builds for, given the reports of fake nvidia-smi and nvcc programs, and how it divides
work between a GPU and the simulator."""

import contextlib
import io
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from door import commands, gpu, packages, tree

FOR_ANY = ["00_the_machine", "01_naive_attention", "03_flash_attention_1", "04_flash_attention_2"]
KNOWN = {
    "12.6": "50 60 70 75 80 86 89 90",
    "13.0": "75 80 86 87 88 89 90 100 110 103 120 121",
    "11.8": "35 50 80 86 89 90",
}


class Gpus(unittest.TestCase):
    def setUp(self):
        self.tools = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(mock.patch.dict(os.environ, {"PATH": f"{self.tools}:{os.environ['PATH']}"}))
        os.environ.pop("CUDACXX", None)
        self.addCleanup(gpu.architecture.cache_clear)

    def tool(self, name, text):
        (self.tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.tools / name).chmod(0o755)

    def reports(self, row="", cuda="", nvcc="13.0"):
        """Returns (architecture, message) on a machine whose nvidia-smi and nvcc print these reports."""
        table = f"echo '| NVIDIA-SMI 1  Driver Version: 1  CUDA Version: {cuda} |'" if cuda else "exit 0"
        self.tool("nvidia-smi", f"case $1 in --query-gpu=*) echo '{row}' ;; *) {table} ;; esac")
        listed = "\\n".join(f"compute_{number}" for number in KNOWN.get(nvcc, "").split())
        self.tool(
            "nvcc",
            f"case $1 in --version) echo 'release {nvcc}, V{nvcc}.1' ;; --list-gpu-arch) printf '{listed}\\n' ;; esac",
        )
        gpu.architecture.cache_clear()
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            return gpu.architecture(), said.getvalue()

    def test_hopper_runs_everything(self):
        self.assertEqual(self.reports("NVIDIA H200, 9.0, 580.65.06", "13.0"), ("90a-real", ""))
        self.assertEqual({gpu.preset(name) for name in ["", *tree.folders()]}, {"gpu"})
        self.assertEqual(gpu.preset("05_flash_attention_3", cuda=False), "sim")

    def test_other_cards_run_what_is_not_for_hopper_alone(self):
        for row, nvcc, architecture in (("NVIDIA A100-SXM4-80GB, 8.0, 535.104.05", "12.6", "80-real"),
                                        ("NVIDIA L4, 8.9, 550.54.14", "12.6", "89-real"),
                                        ("NVIDIA GeForce RTX 3090, 8.6, 580.65.06", "13.0", "86-real"),
                                        ("NVIDIA GeForce RTX 5090, 12.0, 580.65.06", "13.0", "120-real")):
            known, said = self.reports(row, nvcc, nvcc)
            self.assertEqual(known, architecture)
            self.assertEqual(said.count("\n"), 1)
            self.assertIn("chapters 00 01 03 04 run on it; the others need Hopper", said)
            self.assertEqual([name for name in tree.folders() if gpu.preset(name) == "gpu"], FOR_ANY)

    def test_what_does_not_fit_is_said_once_and_simulated(self):
        for row, cuda, nvcc, reason in (
            ("Tesla T4, 7.5, 580.65.06", "13.0", "13.0", "compute capability 7.5, and kernels need 8.0"),
            (
                "NVIDIA L4, 8.9, 535.104.05",
                "12.2",
                "13.0",
                "driver 535.104.05 of NVIDIA L4 is too old for the CUDA toolkit 13.0: "
                "install driver 580 or newer, or an older toolkit",
            ),
            ("NVIDIA L4, 8.9, 535.104.05", "", "13.0", "install driver 580"),
            ("NVIDIA L4, 8.9, 580.65.06", "13.0", "11.8",
             "CUDA toolkit 11.8 is too old: install version 12.5 or newer"),
            ("NVIDIA L4, 8.9, 580.65.06", "13.0", "12.4",
             "CUDA toolkit 12.4 is too old: install version 12.5 or newer"),
            ("NVIDIA GeForce RTX 5090, 12.0, 580.65.06", "13.0", "12.6",
             "CUDA toolkit 12.6 does not support NVIDIA GeForce RTX 5090"),
            ("garbage", "", "13.0", "nvidia-smi does not describe it"),
        ):
            with mock.patch("glob.glob", return_value=["/dev/nvidia0"]):
                known, said = self.reports(row, cuda, nvcc)
            self.assertEqual((known, said.count("\n")), ("", 1), said)
            self.assertIn(reason, said)
            self.assertTrue(said.endswith(". Kernels run in the simulator.\n"), said)

    def test_minor_versions_are_compatible(self):
        self.assertEqual(self.reports("NVIDIA L4, 8.9, 525.60.13", "12.0", "12.6")[0], "89-real")

    def test_forward_compatibility_counts(self):  # its libcuda is newer than the driver
        self.assertEqual(self.reports("NVIDIA H100, 9.0, 535.104.05", "13.0")[0], "90a-real")

    def test_no_toolkit(self):
        self.reports("NVIDIA H200, 9.0, 580.65.06", "13.0")
        gpu.architecture.cache_clear()
        said = io.StringIO()
        with contextlib.redirect_stderr(said), mock.patch.dict(os.environ, {"CUDACXX": "/nowhere/nvcc"}):
            self.assertEqual(gpu.architecture(), "")
        self.assertIn("no CUDA toolkit: install the toolkit to use it", said.getvalue())

    def calls(self, command, **options):
        """Returns the builds and runs of a command on an A100."""
        done = []

        def shown(*words, **_):
            done.append(tuple(map(str, words)))
            return 0

        @contextlib.contextmanager
        def in_background(preset, *targets):
            done.append((preset, *targets))
            yield mock.Mock(left=0)

        self.reports("NVIDIA A100, 8.0, 580.65.06", "13.0")
        said = io.StringIO()
        arguments = mock.Mock(chapters=[], cuda=True, options=[], all=False, **options)
        with (
            contextlib.redirect_stderr(said),
            contextlib.redirect_stdout(said),
            mock.patch.object(packages, "need"),
            mock.patch.multiple(commands, configure=lambda *_: None, has_target=lambda *_: False,
                                background=in_background,
                                build=lambda preset, *targets, tests=False: done.append((preset, *targets)), show=shown,
                                watched=shown,
                                folder=lambda preset: self.tools / preset),
            mock.patch.object(commands.subprocess, "run"),
        ):
            for preset in ("sim", "gpu"):
                (self.tools / preset).mkdir(exist_ok=True)
            command(arguments)
        return done

    def test_one_run_takes_both_machines(self):
        names, done = tree.folders()[1:], self.calls(commands.run)
        on_gpu = [name for name in names if name in FOR_ANY]
        simulated = [name for name in names if name not in FOR_ANY]
        self.assertEqual([call for call in done if call[0] in ("sim", "gpu")],
                         [("gpu", *on_gpu), ("sim", *simulated, "ladder")])
        programs = [Path(call[0]) for call in done if call[0] not in ("sim", "gpu")]
        self.assertEqual([program.parts[-3] for program in programs],
                         ["gpu" if name in FOR_ANY else "sim" for name in names])

    def test_tests_take_both_machines(self):
        done = self.calls(commands.test)
        names = "|".join(FOR_ANY[1:])
        self.assertIn(("gpu", *(f"test_{name}" for name in FOR_ANY[1:])), done)
        self.assertIn(("sim", "standard_tests"), done)
        for tier, option in (("gpu-all", "-R"), ("sim", "-E")):  # the standard tier has none of these tests
            self.assertTrue(
                any(call[:5] == ("ctest", "--preset", tier, option, rf"^test_({names})\.") for call in done), done
            )

    def test_a_student_s_copy_has_no_tests_of_chapters_for_the_gpu(self):
        with mock.patch.object(commands, "ROOT", self.tools):
            done = self.calls(commands.test)
        self.assertEqual([call[0] for call in done], ["sim", "ctest"])


if __name__ == "__main__":
    unittest.main()
