#!/usr/bin/env python3
"""What cmake/wgmma_registers.py says of machine code: lines of chapter 6's kernels as cuobjdump prints them, cut down to one loop."""
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
    """What the check says, and nothing if it is content."""
    run = subprocess.run([sys.executable, CHECK], input=LOOP.format(p=p, scores=scores, between=between), capture_output=True, text=True)
    assert (run.returncode != 0) == bool(run.stderr)
    return run.stderr


class WgmmaRegisters(unittest.TestCase):
    def test_a_right_loop_passes(self):
        self.assertEqual(said_of(), "")

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


if __name__ == "__main__":
    unittest.main()
