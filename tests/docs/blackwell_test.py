#!/usr/bin/env python3
"""Compares the arithmetic of docs/tools/blackwell.py with NVIDIA's types and the FlashAttention-4 paper."""
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from docs.tools import blackwell


class Types(unittest.TestCase):
    def test_e2m1_has_its_sixteen_values(self):
        values = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
        self.assertEqual([blackwell.e2m1(x) for x in values], values)
        self.assertEqual([blackwell.e2m1(x) for x in (0.2, 0.3, 0.75, 1.2, 2.5, 3.4, 5.1, 9, -2.6)], [0, 0.5, 1, 1, 2, 3, 6, 6, -3])

    def test_e4m3_rounds_as_cuda_does(self):
        self.assertEqual([blackwell.e4m3(x) for x in (500, 1e-3, 1.0625, 1.07, -17, 2 ** -9)], [448, 2 ** -9, 1, 1.125, -16, 2 ** -9])

    def test_bf16_ties_go_to_even(self):
        self.assertEqual([blackwell.rounded(x, 7) for x in (1 + 2 ** -8, 1 + 3 * 2 ** -8, 1 + 2 ** -7)], [1, 1 + 2 ** -6, 1 + 2 ** -7])

    def test_an_mx_scale_takes_the_largest_to_the_last_power(self):
        scale = blackwell.largest_power(6)
        self.assertEqual([scale(x) for x in (4, 7.9, 8, 1)], [1, 1, 2, 0.25])

    def test_a_block_keeps_what_its_scale_can_say(self):
        values = [3.0, -6.0, 0.5, 1.0] * 4
        self.assertEqual(blackwell.nvfp4(values), values)


class Exponential(unittest.TestCase):
    def test_cubic_is_the_published_one(self):
        for found, published in zip(blackwell.polynomial(3), (1, 0.6951, 0.2276, 0.0771)):  # FlashAttention-4's coefficients, from Sollya
            self.assertAlmostEqual(found, published, 3)
        self.assertIn("| degree 3 | 3 | 8.6e-05 | 3.9e-03 |", blackwell.cubic_table())  # the paper's table 2 has 8.77e-5 and 3.90e-3


class Clocks(unittest.TestCase):
    def test_a_tile_takes_what_the_paper_says(self):
        self.assertEqual(blackwell.clocks(blackwell.B200, 128, 2, 2, 1), (1024, 1024, 768))  # its table 1

    def test_a_hopper_tile_is_two_of_chapter_5s_consumers(self):
        products, exponentials, operands = blackwell.clocks(blackwell.H200, 128, 2, 2, 1)
        self.assertEqual((products / 2, exponentials / 2), (1024, 512))
        self.assertEqual(operands / 2 + 256, 896)  # with each block's share of the writes


if __name__ == "__main__":
    unittest.main()
