#!/usr/bin/env python3
"""What cmake/wgmma_registers.py says of machine code: lines of chapter 6's kernels as cuobjdump prints them, cut down to one loop. And when
cmake/ptxas_gate asks it."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK = Path(__file__).resolve().parents[2] / "cmake" / "wgmma_registers.py"

# Q is loaded into R100, the loop multiplies it by the keys, rounds P into R{p} and multiplies that by the values.
LOOP = """
\t\tFunction : attend
        /*0010*/                   LDSM.16.M88.4 R100, [R5] ;
        /*0020*/                   QGMMA.64x128x32.F32.E4M3.E4M3 R24, R100, gdesc[UR16], RZ, !UPT, gsb0 ;
        /*0030*/                   WARPGROUP.DEPBAR.LE gsb0, 0x{scores} ;
        /*0040*/                   F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C R{p}, R25, R4, R6 ;
        /*0050*/                   QGMMA.64x64x32.F32.E4M3.E4M3 R120, R{p}, gdesc[UR16], R120, gsb0 ;
        /*0060*/                   {between} ;
        /*0070*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
        /*0080*/              @!P0 BRA 0x20 ;
        /*0090*/                   EXIT ;
"""


def said_of(p=92, scores=0, between="NOP"):
    """What the check says, and nothing if it is content."""
    run = subprocess.run([sys.executable, CHECK], input=LOOP.format(p=p, scores=scores, between=between), capture_output=True, text=True)
    assert (run.returncode != 0) == bool(run.stderr)
    return run.stderr


class WgmmaRegisters(unittest.TestCase):
    def test_a_right_loop_passes(self):
        self.assertEqual(said_of(), "")

    def test_a_barrier_that_two_joins_have(self):
        """R100 is an address's part before the first join, and an operand after it. The way from the first BSYNC does not lead behind the second."""
        code = """
\t\tFunction : attend
        /*0010*/                   BSSY B0, 0x40 ;
        /*0020*/                   LDG.E R100, desc[UR30][R4.64] ;
        /*0030*/                   BSYNC B0 ;
        /*0040*/                   F2FP.BF16.F32.PACK_AB R100, R25, R4 ;
        /*0050*/                   BSSY B0, 0x80 ;
        /*0060*/                   LDG.E R6, desc[UR30][R4.64] ;
        /*0070*/                   BSYNC B0 ;
        /*0080*/                   HGMMA.64x128x16.F32.BF16 R24, R100, gdesc[UR16].tnspB, R24, gsb0 ;
        /*0090*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
        /*00a0*/                   EXIT ;
"""
        for text, bad in ((code, 0), (code.replace("0x40 ;", "0x80 ;"), 1)):  # and where it does
            run = subprocess.run([sys.executable, CHECK], input=text, capture_output=True, text=True)
            self.assertEqual((run.returncode, "loaded on one path" in run.stderr), (bad, bool(bad)), run.stderr)

    def test_two_operands_in_the_same_registers(self):
        self.assertIn("0020: R100", said_of(p=100))

    def test_a_write_to_a_fragment_before_the_wait(self):
        self.assertIn("writes R94, operand of the wgmma at 0050", said_of(between="IMAD.WIDE R94, R1, R2, R8"))
        self.assertEqual(said_of(between="MOV R96, R1"), "")

    def test_a_write_to_an_accumulator_before_the_wait(self):
        self.assertIn("writes R151, accumulator", said_of(between="FMUL R151, R1, R2"))
        self.assertEqual(said_of(between="FMUL R152, R1, R2"), "")

    def test_a_wait_that_leaves_the_group_in_flight(self):
        self.assertIn("writes R100, operand of the wgmma at 0020", said_of(p=100, scores=1))
        self.assertIn("writes R87, accumulator of the wgmma at 0020", said_of(p=87, scores=1))

    def test_what_only_stores_is_no_write(self):
        self.assertEqual(said_of(between="STS.128 [R92], R92"), "")
        self.assertIn("writes R92", said_of(between="@P1 SHFL.BFLY PT, R92, R4, 0x1, 0x1f"))

    def test_two_regions_with_the_same_barrier(self):
        # Threads that meet at 0040 go on at 0050, not where those of the second region do.
        code = """
\t\tFunction : attend
        /*0010*/                   HGMMA.64x64x16.F32.BF16 R120, gdesc[UR16], R120, gsb0 ;
        /*0020*/                   BSSY B0, 0x50 ;
        /*0030*/                   NOP ;
        /*0040*/                   BSYNC B0 ;
        /*0050*/                   WARPGROUP.DEPBAR.LE gsb0, 0x{in_flight} ;
        /*0060*/                   BSSY B0, 0x80 ;
        /*0070*/                   BSYNC B0 ;
        /*0080*/                   FMUL R120, R1, R2 ;
        /*0090*/                   EXIT ;
"""
        for in_flight, said in ((0, ""), (1, "writes R120, accumulator of the wgmma at 0010")):
            run = subprocess.run([sys.executable, CHECK], input=code.format(in_flight=in_flight), capture_output=True, text=True)
            self.assertEqual(run.returncode, in_flight)
            self.assertIn(said, run.stderr)


class Gate(unittest.TestCase):
    """The gate, with a compiler and a cuobjdump that only print."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.tool("nvcc", "echo \"ptxas info : Compiling entry function 'attend' for 'sm_90a'\" >&2; touch kernel.o")

    def tool(self, name, script):
        (self.folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.folder / name).chmod(0o755)

    def gate(self, *options):
        """(exit code, what the gate says, whether the object file is left)."""
        path = os.pathsep.join(part for part in os.get_exec_path() if not (Path(part) / "cuobjdump").exists())
        run = subprocess.run([CHECK.with_name("ptxas_gate"), *options, self.folder / "nvcc", "-o", "kernel.o", "-c", "kernel.cu"], cwd=self.folder,
                             env={**os.environ, "PATH": path}, capture_output=True, text=True)
        return run.returncode, run.stderr, (self.folder / "kernel.o").exists()

    def print_machine_code(self, **change):
        self.tool("cuobjdump", f"cat <<'END'\n{LOOP.format(**{'p': 92, 'scores': 0, 'between': 'NOP', **change})}\nEND")

    def test_fails_on_a_spill_only_if_asked_to(self):
        for line in ("    24 bytes stack frame, 24 bytes spill stores, 48 bytes spill loads", "ptxas info : (C7510) Potential Performance Loss"):
            self.tool("nvcc", f"echo \"ptxas info : Compiling entry function 'attend' for 'sm_80'\n{line}\" >&2; touch kernel.o")
            code, said, left = self.gate("--fail")
            self.assertEqual((code, left), (1, False))
            self.assertIn(line, said)
            code, said, left = self.gate()
            self.assertEqual((code, left, said.count("\n")), (0, True, 1), said)
            self.assertIn("kernel.o.ptxas", said)
            self.assertIn(line, (self.folder / "kernel.o.ptxas").read_text(encoding="utf-8"))

    def test_reads_machine_code_with_the_cuobjdump_beside_nvcc(self):
        self.print_machine_code()
        self.assertEqual(self.gate("--fail"), (0, "", True))
        self.print_machine_code(p=100)
        self.assertEqual(self.gate(), (0, "", True))
        code, said, left = self.gate("--fail")
        self.assertEqual((code, left), (1, False))
        self.assertIn("0020: R100", said)

    def test_machine_code_that_nobody_could_read_does_not_pass(self):
        self.tool("cuobjdump", "exit 1")
        self.assertEqual(self.gate("--fail"), (1, "", False))

    def test_says_that_there_is_no_cuobjdump(self):
        code, said, left = self.gate("--fail")
        self.assertEqual((code, left), (0, True))
        self.assertIn("kernel.o: nobody has read its machine code: there is no cuobjdump", said)


if __name__ == "__main__":
    unittest.main()
