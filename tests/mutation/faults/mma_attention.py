"""Faults in mma_attention.cuh: copies in flight, swizzles, fragments."""
from fault import Fault, everywhere

PREFETCH = """    if (tile + 1 < tiles) {
      load_tile<kHeadDim>(shared.k[1 - stage], k, (tile + 1) * kKeys, seqlen_k);
      load_tile<kHeadDim>(shared.v[1 - stage], v, (tile + 1) * kKeys, seqlen_k);
      cp_async_commit();
    }
"""
BARRIER = "    __syncthreads();  // every thread's copies have landed, and no warp reads the other stage any more\n"

FAULTS = [
    Fault("no_wait", "No thread waits for the copies.", "    cp_async_wait<0>();\n", "",
          everywhere("wrong result", "lazy", "random") | everywhere("wrote at cp_async", "traced")),
    Fault("waits_for_one_less", "The wait leaves one group in flight: the one that is needed.",
          "    cp_async_wait<0>();\n", "    cp_async_wait<1>();\n",
          everywhere("wrong result", "lazy", "random") | everywhere("the last wait of the thread that copied, cp_async_wait<1> at mma_attention.cuh:", "traced")),
    Fault("no_commit", "The copies of the next tile belong to no group, so no wait names them.",
          "      cp_async_commit();\n    }\n", "    }\n",
          everywhere("wrong result", "lazy", "random") | everywhere("wrote at cp_async", "traced")),
    Fault("no_barrier_after_wait", "A warp uses a tile before other warps' copies have landed.", BARRIER, "",
          everywhere("wrong result", "eager", "lazy") | everywhere("race", "traced")),
    Fault("prefetch_before_barrier", "The next tile is copied into a stage that other warps still read.",
          BARRIER + PREFETCH, PREFETCH + BARRIER,
          everywhere("wrong result", "eager", "lazy") | everywhere("race", "traced")),
    Fault("prefetch_into_used_stage", "The next K is copied over this K.", "shared.k[1 - stage], k,",
          "shared.k[stage], k,", everywhere("wrong result", "eager", "lazy", "random") | everywhere("race", "traced")),
    Fault("v_not_transposed", "The rows of V are distributed as if they were its columns.",
          "ldmatrix_x4_trans(b, shared.v", "ldmatrix_x4(b, shared.v", everywhere("wrong result")),
    Fault("k_transposed", "The columns of K are distributed as if they were its rows.", "ldmatrix_x4(b, shared.k",
          "ldmatrix_x4_trans(b, shared.k", everywhere("wrong result")),
    Fault("fragments_exchanged", "Two registers of K are used in the wrong products.", "a, b[0], b[1], scores[2 * n]);",
          "a, b[0], b[2], scores[2 * n]);", everywhere("wrong result")),
    Fault("row_of_another_lane", "The lanes address the rows of K in a different order from the one that the product needs.",
          "lane % 8 + lane / 16 * 8;", "lane % 16;", everywhere("wrong result")),
    Fault("swizzled_on_one_side", "The copies are not swizzled, but ldmatrix reads the tile swizzled.",
          "tile + swizzled<kHeadDim>(row, chunk), from", "tile + row * kHeadDim + chunk * 8, from",
          everywhere("wrong result")),
    Fault("no_swizzle", "Eight rows of a matrix are in the same banks.", "(chunk ^ row % 8) * 8", "chunk * 8",
          everywhere("bank conflicts", "traced")),
    Fault("misaligned_row", "ldmatrix gets addresses that are 8 bytes off.", "2 * c + lane / 8 % 2));",
          "2 * c + lane / 8 % 2) + 4);", everywhere("misaligned address")),
    Fault("ldmatrix_by_half_a_warp", "Half of each warp executes an instruction meant for the whole warp.",
          "        ldmatrix_x4(b, shared.k[stage]", "        if (lane < 16) ldmatrix_x4(b, shared.k[stage]",
          everywhere("divergent warp")),
    Fault("row_split_among_two_lanes", "The maximum of a row is taken over two of the four lanes that have it.",
          "      new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffff, new_max, 2));\n", "", everywhere("wrong result")),
    Fault("copy_out_of_bounds", "Rows past the last are copied instead of filled with zeros.",
          """(inside ? first_row + row : 0) * kHeadDim + chunk * 8;
    cp_async_cg(tile + swizzled<kHeadDim>(row, chunk), from, inside ? 16 : 0);""",
          """(first_row + row) * kHeadDim + chunk * 8;
    cp_async_cg(tile + swizzled<kHeadDim>(row, chunk), from, 16);""",
          everywhere("not in an allocation of device memory")),
    Fault("store_out_of_bounds", "Rows past the last are written.", "    if (query >= seqlen_q) continue;\n", "",
          everywhere("out of bounds", "traced")),
    Fault("no_mask", "Keys beyond the last one count as zeros instead of not at all.",
          "key < seqlen_k ? scores[j][i] * (scale * kLog2E) : -INFINITY", "scores[j][i] * (scale * kLog2E)",
          everywhere("wrong result")),
    Fault("rows_of_v_exchanged", "Two neighbouring rows of V, but not of K, are swapped.",
          "swizzled<kHeadDim>(n * 16 + lane % 16, 2 * c + lane / 16));\n        mma_m16n8k16<T>(sums[2 * c]",
          "swizzled<kHeadDim>(n * 16 + (lane % 16 < 2 ? 1 - lane % 16 : lane % 16), 2 * c + lane / 16));\n        mma_m16n8k16<T>(sums[2 * c]",
          everywhere("wrong result")),
    Fault("values_of_a_tiles_end_lost", "The last 16 keys of a tile count in the sum, but their values are left out.",
          "    for (int n = 0; n < kKeys / 16; ++n) {\n      // The sums",
          "    for (int n = 0; n < kKeys / 16 - 1; ++n) {\n      // The sums", everywhere("wrong result")),
]
