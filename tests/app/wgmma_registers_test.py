#!/usr/bin/env python3
"""Tests cmake/wgmma_registers.py on machine code: lines of chapter 6's kernels as printed by cuobjdump, reduced to one loop."""
import subprocess
import sys
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
    """Returns the check's message; empty if it passes."""
    run = subprocess.run([sys.executable, CHECK], input=LOOP.format(p=p, scores=scores, between=between), capture_output=True, text=True)
    assert (run.returncode != 0) == bool(run.stderr)
    return run.stderr


class WgmmaRegisters(unittest.TestCase):
    def test_a_right_loop_passes(self):
        self.assertEqual(said_of(), "")

    def test_a_barrier_that_two_joins_have(self):
        """R100 is part of an address before the first join and an operand after it. No path leads from the first BSYNC past the second."""
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
        for text, bad in ((code, 0), (code.replace("0x40 ;", "0x80 ;"), 1)):  # with the branch's original target, and with another
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
        # Threads that reconverge at 0040 continue at 0050, not after the second region.
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


if __name__ == "__main__":
    unittest.main()
