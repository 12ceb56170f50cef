#!/usr/bin/env python3
"""Plants faults that remove a chapter's idea; the default run must detect them.

chapters.py lists                   prints, for CMake, each chapter's files with faults and the names of its faults:
                                    `wrong`, which `check` expects to be noticed, `shown`, which `report` does, and
                                    `ramp`, the latter in the kernels before chapter 5's first step
chapters.py plant CHAPTER FOLDER    writes the files of chapters/CHAPTER that have faults below FOLDER, where an include
                                    finds them first. They contain all faults; FLASHBOOK_FAULT selects one by its index
                                    in FAULTS (planted.cpp)
chapters.py check NAME PROGRAM REPORTS
                                    runs the program built with those files, with that fault, and expects it to call
                                    the steps wrong; what it prints about them is written to a file in the folder
                                    REPORTS, for the chapter's page
chapters.py report NAME PROGRAM REPORTS
                                    the same, but the traced mode (`flashbook profile`) must report the fault, and
                                    its report is written to the file

The exit code is 1, with a message, if a fault's text is not in the chapter any more or if the fault goes unnoticed.
"""
import itertools
import re
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from fault import Refused, place_of, run_with

from bench import steps


@dataclass
class Fault:
    """In the text `line` of `file`, `old` becomes `new`, and the program must call `steps` wrong. `old` is either
    statements, which end with a semicolon, or an expression."""
    file: str  # relative to chapters/, or to the repository's root for files of common/
    line: str  # occurs once in the file
    old: str
    new: str
    steps: tuple[str, ...]  # steps whose output, O or a gradient, is wrong
    options: list[str] = field(default_factory=list)  # options of the program: usually none or a mask
    environment: dict[str, str] = field(default_factory=dict)  # includes the simulator's mode, unless lazy finds the fault
    traced: list[str] = field(default_factory=list)  # options for the traced mode,
    says: str = ""  # and an expression that its report must match
    command: str = ""  # the command that a page names, if not the chapter's program


ALL = {chapter: tuple(step.slug for step in steps.of(chapter)) for chapter in range(1, 11)}
RING = ("ring", "paged", "equal_work", "boxes")  # chapter 8's steps that share a kernel
RING_IN_E4M3 = ("ring", "paged", "equal_work", "e4m3_cache", "boxes")
MASKED = ("dense", "varlen", "ranges", "flashmask", "mask_functions")  # chapter 9's forward steps
SMALL = ["--batch", "1", "--heads", "1", "--head-dim", "64"]
E4M3_CACHE = ["--cache", "e4m3", "--seqlen-k", "100"]
POISONED = ["--lengths", "150,90", "--page-rows", "64"]  # NaN follows a sequence's last key in its page
EMPTY_BETWEEN = ",".join(["100", *["0"] * 9] * 3)
LATENT = ["--head-dim", "576", "--heads", "8", "--kv-heads", "1", "--seqlen", "1", "--seqlen-k", "300"]

VARLEN = ["--lengths", "60,200,100", "--causal"]
LONGER = ["--lengths", "700,1500", "--causal", "--heads", "1", "--head-dim", "64"]
# intervals.npy: queries 128 to 254 do not see keys 0 to 127.
INTERVALS = ["--batch", "1", "--seqlen", "260", "--causal", "--mask", "tests/mutation/intervals.npy"]
# pairs.npy: of 4 queries, even ones see the even keys of 640, and odd ones the odd keys.
PAIRS = ["--seqlen", "4", "--seqlen-k", "640", "--mask", "tests/mutation/pairs.npy"]
# bias.npy: one head, distances -4 to 4.
BIAS = ["--heads", "1", "--bias", "tests/mutation/bias.npy"]

RANKS = ["--ranks", "3", "--seqlen", "200", "--causal"]
PACKED_RANKS = ["--ranks", "3", "--lengths", "60,200,100", "--causal"]
EIGHT = ["--step", "zigzag", "--ranks", "8", "--seqlen", "400", "--heads", "1"]
AT_RANDOM = {"FLASHBOOK_SIM_ASYNC": "random", "FLASHBOOK_SIM_SEED": "4"}
RAMP = "./flashbook ramp --no-cuda"

FAULTS = {
    "no_mask_01": Fault("01_naive_attention/problem.cuh", "if (!causal) return seqlen_k;", "!causal", "true", ALL[1], ["--causal"]),
    "one_lane_01": Fault("01_naive_attention/softmax.cuh", "row_sum = warp_sum(row_sum);", "warp_sum(row_sum)", "row_sum", ALL[1][1:]),
    "not_turned_01": Fault("01_naive_attention/step2_coalesced.cuh", "k_column[int64_t(c) * problem.seqlen_k]", "int64_t(c) * problem.seqlen_k",
                           "int64_t(c)", ("coalesced",)),
    "no_barrier_01": Fault("01_naive_attention/step3_shared_tile.cuh", "k_tile[tx][ty] = to_float(k_row[c + tx]);\n    __syncthreads();",
                           "__syncthreads();", "", ("shared_tile",), traced=["--step", "shared_tile", "--seqlen", "32", *SMALL], says="data race in block"),
    "half_a_mask_01": Fault("01_naive_attention/softmax.cuh", "value += __shfl_xor_sync(0xffffffffu, value, distance);", "0xffffffffu", "0x0000ffffu", (),
                            traced=["--step", "shared_tile", "--seqlen", "32", *SMALL], says="is not in the mask"),
    "unwritten_01": Fault("01_naive_attention/step3_shared_tile.cuh", "first_key + tx < visible ? to_float(p_row[first_key + tx]) : 0.0f;",
                          "first_key + tx < visible", "first_key + tx < problem.score_stride", ("shared_tile",), ["--causal"]),
    "no_zeros_01": Fault("01_naive_attention/step5_wmma.cuh", "if (e >= seen)", "e >= seen", "false", ("wmma",), ["--causal"]),
    "no_barrier_fragments_01": Fault("01_naive_attention/step5_wmma.cuh", "k_chunk.store(k_tile, all);\n    __syncthreads();",
                                     "__syncthreads();", "", ("wmma",)),
    "no_rescaling_02": Fault("02_online_softmax/step2_online_softmax.h", ".correction = std::exp(state.row_max - new_max)",
                             "std::exp(state.row_max - new_max)", "1", ("online_softmax", "one_pass")),
    "no_rescaling_tiles_02": Fault("02_online_softmax/step4_blocked_attention.h", "for (float& element : o) element *= correction;",
                                   "for (float& element : o) element *= correction;", "", ("blocked",), ["--step", "blocked"]),
    "no_guard_02": Fault("02_online_softmax/step5_register_blocks.h", "subtracted = new_max == kMinusInfinity ? Floats{} : new_max;",
                         "new_max == kMinusInfinity ? Floats{} : new_max", "new_max", ("register_blocks",),
                         ["--seqlen", "100", "--seqlen-k", "70", "--causal"]),
    "no_rescaling_03": Fault("03_flash_attention_1/problem.cuh", "return {new_max, subtracted, exp2_approx(row_max - subtracted)};",
                             "exp2_approx(row_max - subtracted)", "1.0f", ALL[3]),
    "no_barrier_03": Fault("03_flash_attention_1/step2_queries_outside.cuh", "__syncthreads();  // everyone is done with K and V", "__syncthreads();", "", (),
                           traced=["--step", "queries_outside", "--seqlen", "128", *SMALL], says="data race in block"),
    "added_too_early_03": Fault("03_flash_attention_1/step3_split_k.cuh", "__syncthreads();  // this warp's part is in the piece", "__syncthreads();", "",
                                (), traced=["--step", "split_k", "--seqlen", "64", *SMALL], says="data race in block"),
    "no_rescaling_split_04": Fault("04_flash_attention_2/softmax.cuh", "out[0][n][i] *= before * inverse;",
                                   "out[0][n][i] *= before * inverse;", "if (before == 0) out[0][n][i] = 0;", ("split_q", "ldmatrix", "two_stages")),
    "no_rescaling_04": Fault("04_flash_attention_2/softmax.cuh",
                             "float correction = exp2_approx((rows.max[r][half] - maxima[r][half]) * scale_log2e);",
                             "exp2_approx((rows.max[r][half] - maxima[r][half]) * scale_log2e)", "1", ("fewer_operations", "tuned", "late_maximum")),
    "no_barrier_04": Fault("04_flash_attention_2/step3_two_stages.cuh", "__syncthreads();  // the tile has arrived, and no warp still", "__syncthreads();", "", (),
                           traced=["--step", "two_stages", "--seqlen", "128", *SMALL], says="data race in block"),
    "no_swizzle_04": Fault("04_flash_attention_2/warp_tile.cuh", "return row * kRowBytes + (piece ^ row % 8) * 16;", "piece ^ row % 8", "piece", (),
                           traced=["--step", "two_stages", "--seqlen", "64", *SMALL], says="ldmatrix"),
    "no_rescaling_05": Fault("common/hopper/softmax.h", "correction[r] = exp2_approx((rows.max[r] - base[r]) * scale_log2);",
                             "exp2_approx((rows.max[r] - base[r]) * scale_log2)", "1", ALL[5]),
    "wrong_parity_05": Fault("common/hopper/pipeline.h", "mbarrier_wait(&pipeline.empty[state.stage], state.phase ^ 1);", "state.phase ^ 1", "state.phase",
                             (), traced=["--step", "specialised", "--seqlen", "256", *SMALL], says="deadlock in block"),
    "waits_for_one_less_05": Fault("05_flash_attention_3/step2_specialised.cuh", "wgmma_wait<0>();  // both products are done", "wgmma_wait<0>();",
                                   "wgmma_wait<1>();", (), traced=["--step", "specialised", "--seqlen", "512", *SMALL], says="is in flight"),
    # The four small kernels before step 1.
    "early_reader_05": Fault("05_flash_attention_3/ramp_mbarrier.cuh", "mbarrier_wait(&full, parity);", "parity", "parity ^ 1", (),
                             says="uninitialised shared memory is read", command=RAMP),
    "no_fence_05": Fault("05_flash_attention_3/ramp_tma.cuh", "fence_proxy_async();  // TMA sees what this thread wrote", "fence_proxy_async();", "",
                         (), says="data race in block", command=RAMP),
    "no_swizzle_05": Fault("05_flash_attention_3/ramp_wgmma.cuh", "swizzled(Swizzle::b32, uint32_t(i) * 2)", "swizzled(Swizzle::b32, uint32_t(i) * 2)",
                           "uint32_t(i) * 2", (), says="WRONG: ramp_wgmma: element 4 is", command=RAMP),
    "step_of_k_05": Fault("05_flash_attention_3/ramp_panel.cuh", "wgmma_advance(values, step * 2048)", "step * 2048", "step * 32",
                          (), says="the descriptor of B begins 32 bytes into a line", command=RAMP),
    "no_rescaling_06": Fault("06_fp8/softmax.cuh", "correction[r] = exp2_approx(rows.max[r] - safe_max);",
                             "exp2_approx(rows.max[r] - safe_max)", "1", ALL[6]),
    "no_scales_06": Fault("06_fp8/problem.cuh", "return scale == nullptr ? 1.0f :", "scale == nullptr", "true", ALL[6]),
    "no_means_06": Fault("06_fp8/epilogue.cuh", "if (v_mean != nullptr)", "v_mean != nullptr", "false", ALL[6],
                         ["--seqlen", "40", "--seqlen-k", "8"]),
    "twos_06": Fault("06_fp8/step1_attention.cuh", "(&shared.ones)[i] = kOne;", "kOne", "0x40", ("row_sums", "transpose_once", "linear_exp", "promoted_sums")),
    "other_slope_06": Fault("06_fp8/softmax.cuh", "factor = scale.factor * kLineSlope,", "kLineSlope", "4.0f / 128", ("linear_exp",)),
    "added_again_06": Fault("06_fp8/step9_promoted_sums.cuh", "sums[0] -= stored.x, sums[1] -= stored.y;", "sums[0] -= stored.x, sums[1] -= stored.y;", "", ("promoted_sums",), ["--seqlen", "40", "--seqlen-k", "2000"]),
    "one_does_not_arrive_06": Fault("06_fp8/producer.cuh", "release(shared.raw, from);", "release(shared.raw, from);",
                                    "if (warp == 0) release(shared.raw, from);", (), traced=["--step", "overlapped", "--seqlen", "512", *SMALL], says="deadlock in block"),
    "arrives_for_others_06": Fault("06_fp8/producer.cuh", "__syncwarp();         // all lanes have read and written", "__syncwarp();", "", (),
                                   traced=["--step", "overlapped", "--seqlen", "256", *SMALL], says="data race in block"),
    # Chapter 7: the steps with mma.sync.
    "no_d_07": Fault("07_backward/step2_keys_outside.cuh", "y = x * (y - query_d);", "y - query_d", "y", ("two_passes", "one_pass")),
    "no_mask_07": Fault("07_backward/step2_keys_outside.cuh", "if (kMasked && r * 16 + half * 8 > last)", "kMasked && r * 16 + half * 8 > last", "false",
                        ("two_passes", "one_pass"), ["--causal"]),
    "no_scale_07": Fault("07_backward/step2_keys_outside.cuh", "(dk_sums, problem.scale,", "problem.scale", "1.0f", ("two_passes", "one_pass")),
    "no_wait_07": Fault("07_backward/step2_keys_outside.cuh", "    cp_async_wait<0>();\n", "cp_async_wait<0>();", "", ("two_passes", "one_pass")),
    "no_barrier_07": Fault("07_backward/step2_keys_outside.cuh", "if (!kShares) __syncthreads();", "if (!kShares) __syncthreads();", "", ("one_pass",)),
    "same_stage_07": Fault("07_backward/step2_keys_outside.cuh", "* const stage = stages + i % 2 * Traits::kStageBytes;", "stages + i % 2 * Traits::kStageBytes",
                           "stages", ("two_passes", "one_pass")),
    "not_transposed_07": Fault("07_backward/step2_keys_outside.cuh",
                           "ldmatrix_x4_trans(a[r], ds_tile + step * 16 * kPairRowBytes + (place ^ r * 32));",
                           "ldmatrix_x4_trans(a[r], ds_tile + step * 16 * kPairRowBytes + (place ^ r * 32));",
                           "ldmatrix_x4(a[r], ds_tile + step * 16 * kPairRowBytes + (place ^ r * 32));", ("one_pass",)),
    "one_head_07": Fault("07_backward/step2_keys_outside.cuh", "tiles = tiles_of_head * problem.group;", "problem.group", "1", ("two_passes", "one_pass"),
                         ["--heads", "4", "--kv-heads", "2"]),
    "first_query_07": Fault("07_backward/problem.cuh", "causal ? max(key + seqlen_q - seqlen_k, 0) : 0;", "max(key + seqlen_q - seqlen_k, 0)",
                            "key", ("one_pass",), ["--step", "one_pass", "--causal", "--seqlen", "100", "--seqlen-k", "200"]),
    "last_tile_07": Fault("07_backward/step1_queries_outside.cuh", "last_key / kKeys + 1;", "last_key / kKeys + 1", "last_key / kKeys", ("two_passes",)),
    # The two faults in its Hopper steps that the chapter shows.
    "no_fence_07": Fault("common/hopper/gradient_round.h", "fence_proxy_async();  // this thread's writes become visible to TMA", "fence_proxy_async();", "",
                         (), traced=["--step", "specialised", "--seqlen", "256", *SMALL], says="data race in block"),
    "no_wait_for_reading_07": Fault("07_backward/step4_hopper_blocks.cuh", "tma_store_wait_read<0>();  // it may be overwritten",
                                    "tma_store_wait_read<0>();", "", (), traced=["--step", "specialised", "--seqlen", "256", *SMALL], says="data race in block"),
    # Chapter 8: the ring's steps, the merge and the plan.
    "no_rescaling_08": Fault("08_decoding/softmax.cuh", "correction[r] = exp2_approx((rows.max[r] - base) * scale_log2);",
                             "exp2_approx((rows.max[r] - base) * scale_log2)", "1", ALL[8][:-1]),
    "no_guard_08": Fault("08_decoding/merge.cuh", "own_weight = lse == -INFINITY ? 0 : exp2_approx((lse - max) / kLn2);", "lse == -INFINITY", "false",
                         ("split_kv",), ["--batch", "1", "--heads", "1", "--kv-heads", "1", "--seqlen", "140", "--seqlen-k", "130", "--causal"]),
    "one_too_early_08": Fault("08_decoding/last_arriver.cuh", "== unsigned(segment.parts - 1);",
                              "unsigned(segment.parts - 1)", "unsigned(segment.parts - 2)", RING,
                              ["--batch", "1", "--heads", "4", "--kv-heads", "1"]),
    "forgotten_warp_08": Fault("08_decoding/last_arriver.cuh", "for (int w = 0; w < kKeyWarps; ++w) {", "w < kKeyWarps", "w < kKeyWarps - 1",
                               RING_IN_E4M3),
    "keys_exchanged_08": Fault("08_decoding/narrow_tile.cuh", "mma_m16n8k16<T>(sums, a, both(0), both(2), sums);", "both(0)", "both(2)", RING),
    "last_keys_08": Fault("08_decoding/step4_ring.cuh", "if (chunk_keys < kRowsPerMma || problem.causal) {", "chunk_keys < kRowsPerMma", "false", RING_IN_E4M3),
    "wrong_page_08": Fault("08_decoding/step4_ring.cuh", "cache.table[of.batch * cache.pages_of_sequence + (key >> cache.page_bits)]",
                           "key >> cache.page_bits", "(key >> cache.page_bits) / 2 * 2", ("paged",), ["--step", "paged", "--page-rows", "16"]),
    "prefix_counted_twice_08": Fault("08_decoding/host/shared_prefix.cuh", "found.rest_part.plan.first_key = spec.paging.shared;", "spec.paging.shared", "0",
                                     ("equal_work",), ["--step", "equal_work", "--page-rows", "16", "--shared-prefix", "512"]),
    "shares_with_a_gap_08": Fault("08_decoding/plan.cuh", "return i * each + min(i, more);", "min(i, more)", "0", RING,
                                  ["--batch", "1", "--heads", "4", "--kv-heads", "1", "--seqlen-k", "2500"]),
    "same_head_08": Fault("08_decoding/plan.cuh", "round * plan_.team + at.member", "at.member", "0", ("equal_work", "boxes", "warpgroup"),
                          ["--batch", "3", "--heads", "4", "--kv-heads", "2", "--seqlen", "1", "--seqlen-k", "300"]),
    "never_merged_08": Fault("08_decoding/step10_merge.cuh", "== unsigned(segment.parts - 1);", "segment.parts - 1", "segment.parts", ("warpgroup",),
                             ["--batch", "1", "--heads", "4", "--kv-heads", "1", "--seqlen", "8", "--seqlen-k", "1000"]),
    "next_but_one_08": Fault("08_decoding/plan.cuh", "at.unit += int(gridDim.x);\n      at.left", "int(gridDim.x)", "int(gridDim.x) + 1", ("equal_work", "boxes", "warpgroup"),
                             ["--batch", "240", "--heads", "1", "--kv-heads", "1", "--seqlen", "1", "--seqlen-k", "40"]),
    # Windows, functions and sinks.
    "window_begins_late_08": Fault("08_decoding/rules.cuh", "return max(length - queries_of(problem, batch) - left, 0) & -align;",
                                   "length - queries_of(problem, batch) - left", "length - queries_of(problem, batch) - left + 1", (*RING, "warpgroup"),
                                   ["--window", "20", "--causal"]),
    "key_before_the_window_08": Fault("08_decoding/rules.cuh", "if (key < own - left || key > own + right)", "key < own - left", "key < own - left - 1",
                                      ("paged", "equal_work", "boxes", "warpgroup"), ["--window", "20", "--causal", "--page-rows", "16"]),
    "distance_from_the_chunk_08": Fault("08_decoding/rules.cuh", "first_own + (row + 8 * r) / problem.pack - first_key - column_of(0));",
                                        "first_own + (row + 8 * r) / problem.pack - first_key - column_of(0)",
                                        "first_own + (row + 8 * r) / problem.pack - column_of(0)", (*RING, "warpgroup"), ["--alibi"]),
    "sink_without_weight_08": Fault("08_decoding/rules.cuh", "return weight / sum;", "weight / sum", "1.0f", (*RING, "warpgroup"), ["--sinks", "13", "--seqlen-k", "20"]),
    "no_correction_08": Fault("08_decoding/step7_latent.cuh", "if (__any_sync(kWholeWarp, correction[0] != 1 || correction[1] != 1)) rescale_rows(",
                              "correction[0] != 1 || correction[1] != 1", "false", ("latent",), LATENT),
    "one_place_08": Fault("08_decoding/step7_latent.cuh", "const float* corrections = shared.correction[flags.of(kTurn)];", "flags.of(kTurn)", "0", ("latent",), LATENT),
    "last_columns_08": Fault("08_decoding/step7_latent_tiles.cuh", "wgmma<T, 64>(scores, step == kSteps ? last : wgmma_advance(position, in_panel), keys, true);",
                             "step == kSteps ? last : wgmma_advance(position, in_panel)", "wgmma_advance(position, in_panel)", ("latent",), LATENT),
    "one_half_08": Fault("08_decoding/step7_latent_tiles.cuh", "panels[warpgroup * LatentKernelTraits::kHalfPanels]", "warpgroup * LatentKernelTraits::kHalfPanels",
                         "0", ("latent",), LATENT),
    "waits_for_one_08": Fault("08_decoding/step7_latent_merge.cuh", "while (load_acquire(arrivals) < unsigned(item.parts)) {", "unsigned(item.parts)", "1u",
                              ("latent",), LATENT),
    "blocks_of_items_08": Fault("08_decoding/plan.cuh", "return unit / units_per_block; }", "units_per_block", "units_per_item", ("latent",), LATENT),
    "row_of_another_08": Fault("08_decoding/step7_latent_loads.cuh", "const T* from = q + __shfl_sync(kWholeWarp, before, i) + lane * 8;", "__shfl_sync(kWholeWarp, before, i)",
                              "before", ("latent",), LATENT),
    "no_scale_08": Fault("08_decoding/step7_latent_merge.cuh", "rows[i].scale *= weight;", "rows[i].scale *= weight;", "rows[i].scale = weight;", ("latent",), LATENT),
    "scale_of_values_left_out_08": Fault("08_decoding/step8_e4m3_cache.cuh", "const float factor = 1 / lift_;", "1 / lift_", "1 / kLift", ("e4m3_cache",), E4M3_CACHE),
    "keys_twice_08": Fault("08_decoding/step8_e4m3_cache.cuh", "mma_m16n8k16<__half>(sums[1], a, upper.high, lower.high, sums[1]);", "upper.high", "lower.high",
                           ("e4m3_cache",), E4M3_CACHE),
    "power_left_out_08": Fault("08_decoding/step8_e4m3_cache.cuh", "scales.row_factor[r] = power_of_two(exponent - kExponent);", "exponent - kExponent", "0", ("e4m3_cache",),
                               E4M3_CACHE),
    "behind_the_last_key_08": Fault("08_decoding/step8_e4m3_cache.cuh", "if (key >= keys) continue;", "key >= keys", "false", ("e4m3_cache",), [*E4M3_CACHE[:2], *POISONED]),
    "no_handover_08": Fault("08_decoding/last_arriver.cuh", "is_last = atomic_add_acq_rel(arrived, 1u)", "atomic_add_acq_rel(arrived, 1u)",
                            "atomicAdd(arrived, 1u)", (), traced=["--step", "ring", "--seqlen", "1", "--seqlen-k", "600", *SMALL], says="data race between blocks"),
    "keys_behind_the_last_08": Fault("08_decoding/step4_ring.cuh", "const int rows = min(cache.copy_rows, segment.length - key);",
                                     "min(cache.copy_rows, segment.length - key)", "cache.copy_rows", (),
                                     traced=["--step", "ring", "--seqlen", "1", "--seqlen-k", "100", *SMALL], says="."),
    # Boxes, and a warpgroup's rows.
    "pages_of_the_first_tile_08": Fault("08_decoding/step9_boxes.cuh", "const int from = (tiles_at_once - left_--) * cache_.copies + box;",
                                        "(tiles_at_once - left_--) * cache_.copies", "left_-- * 0", ("boxes", "warpgroup"), ["--page-rows", "16", "--batch", "1"]),
    "values_behind_the_last_08": Fault("08_decoding/step10_warpgroup.cuh", "if (keys_left < kKeys) clear_values<Traits>(", "keys_left < kKeys", "false", ("warpgroup",),
                                       ["--step", "warpgroup", "--seqlen", "8", *POISONED]),
    "skips_a_whole_round_08": Fault("08_decoding/step9_boxes.cuh", "if (keys_are_next != kValues) {", "keys_are_next != kValues", "!kValues", (),
                                    traced=["--step", "boxes", "--seqlen", "1", "--lengths", EMPTY_BETWEEN], says="one arrival too many at mbarrier full"),
    "bytes_of_part_of_a_box_08": Fault("08_decoding/step9_boxes.cuh", "min(Traits::kKeys, (segment.length - first_key + box_keys - 1) & -box_keys);",
                                       "(segment.length - first_key + box_keys - 1) & -box_keys", "segment.length - first_key", (),
                                       traced=["--step", "boxes", "--seqlen", "1", "--seqlen-k", "100", *SMALL],
                                       says="more bytes landed than were announced"),
    "no_fence_08": Fault("08_decoding/step10_warpgroup.cuh", "fence_proxy_async();  // and visible to wgmma,", "fence_proxy_async();", "", (),
                         traced=["--step", "warpgroup", "--seqlen", "32", "--seqlen-k", "100", *SMALL],
                         says="data race in block 0 on dynamic shared memory"),
    "too_many_registers_08": Fault("08_decoding/step10_warpgroup.cuh", "if constexpr (Traits::kConsumers == 2) setmaxnreg_inc<224>();",
                                   "setmaxnreg_inc<224>();", "setmaxnreg_inc<232>();", (),
                                   traced=["--step", "warpgroup", "--seqlen", "80", "--seqlen-k", "100", *SMALL],
                                   says="for 232 registers: the warp has 168, 0 are free"),
    # Chapter 9: packed sequences and FlashMask, with the ranges that both use.
    "skips_at_the_end_09": Fault("09_masks/step4_flashmask.cuh", "if (largest.lower_begin <= first_query && last_query < least.lower_end)",
                                 "last_query < least.lower_end", "last_query <= least.lower_end", ("flashmask",), INTERVALS),
    "partial_is_full_09": Fault("09_masks/step4_flashmask.cuh", "return no_lower && no_upper ? TileClass::full", "no_lower && no_upper", "no_lower || no_upper",
                                ("flashmask",), INTERVALS),
    "over_the_next_09": Fault("09_masks/step2_varlen.cuh", "varlen_rows(sequence.first_query, sequence.queries)",
                              "varlen_rows(sequence.first_query, sequence.queries)", "MapRows{kVarlenMapRows - first_query[count] + sequence.first_query, first_query[count], kWrap}", ("varlen", "mask_functions"), VARLEN,
                              traced=["--step", "varlen", *VARLEN, "--heads", "1", "--head-dim", "64"], says="data race"),
    "columns_of_a_value_09": Fault("09_masks/host/varlen_map.cuh", "const int row = columns_of(spec, tensor);", "columns_of(spec, tensor)", "spec.value_dim",
                                   ("varlen",), ["--step", "varlen", *VARLEN, "--head-dim", "64", "--value-dim", "40"]),
    "other_sequence_09": Fault("09_masks/problem.cuh", "ascending[begin + offset] <= place;", "ascending[begin + offset] <= place",
                               "(offset == 0 || ascending[begin + offset] < place)", ("varlen", "mask_functions"), VARLEN),
    "no_barrier_09": Fault("09_masks/step2_varlen.cuh", "  __syncthreads();  // all buckets are empty\n", "__syncthreads();", "", ("varlen", "mask_functions"), VARLEN),
    "full_by_one_row_09": Fault("09_masks/step3_ranges.cuh", "first.has_all(first_key, last_key) & last.has_all(first_key, last_key);",
                                "first.has_all(first_key, last_key)", "true", ("varlen", "mask_functions"), VARLEN),
    # Blocks with three or more tiles of queries: the third is loaded where the first one's output was.
    "queries_before_the_store_has_read_09": Fault("09_masks/producer.cuh", "tma_store_wait_read<0>();  // the next queries may be loaded", "tma_store_wait_read<0>();",
                                                  "", (), traced=["--step", "varlen", *LONGER], says="data race"),
    "queries_not_kept_waiting_09": Fault("09_masks/producer.cuh", "mbarrier_wait(&shared.barriers.q_empty[place.stage][i], place.phase ^ 1);",
                                         "mbarrier_wait(&shared.barriers.q_empty[place.stage][i], place.phase ^ 1);", "", (),
                                         traced=["--step", "varlen", *LONGER], says="data race"),
    # Prompts with a paged cache.
    "one_page_a_tile_09": Fault("09_masks/step8_prompts.cuh", "pages.page_of(work.sequence.first_key, first_key + row)", "pages.page_of(work.sequence.first_key, first_key + row)",
                                "pages.page_of(work.sequence.first_key, first_key)", ("prompts",), ["--step", "prompts", "--page-rows", "16"]),
    "next_head_is_later_09": Fault("09_masks/problem.cuh", "return row & (queries_among(policy, kRowsPerWarpgroup) - 1);",
                                   "row & (queries_among(policy, kRowsPerWarpgroup) - 1)", "row", ("prompts",),
                                   ["--step", "prompts", "--kv-heads", "1", "--causal"]),
    "tiles_of_one_head_09": Fault("09_masks/step8_prompts.cuh", "return tile_rows >> head_bits;", "tile_rows >> head_bits", "tile_rows", ("prompts",),
                                  ["--step", "prompts", "--kv-heads", "1"]),
    # The gradient. Query 127, the last of a tile, sees only key 0.
    "skips_the_last_query_09": Fault("09_masks/step6_transposed.cuh", "if (last_query < begin || first_query >= end) return TileClass::skip;",
                                     "last_query < begin", "last_query <= begin", ("backward",),
                                     ["--step", "backward", "--seqlen", "328", "--seqlen-k", "201", "--causal"]),
    "full_by_the_first_key_09": Fault("09_masks/step6_transposed.cuh", "return {first.begin, max(first.end, last.end), last.begin, queries_of_key(",
                                      "last.begin", "first.begin", ("backward",), ["--step", "backward", "--causal"]),
    "slope_after_the_mask_09": Fault("09_masks/step6_backward_block.cuh", "const float y = scores[4 * group + i];", "scores[4 * group + i]",
                                     "kMasked && (seen[i / 2] >> (2 * group + i % 2) & 1) == 0 ? -INFINITY : scores[4 * group + i]", ("backward",),
                                     ["--step", "backward", "--softcap", "2", "--causal"]),
    "over_the_next_keys_09": Fault("09_masks/step6_backward_block.cuh", "key = key_of(0), end = work.sequence.keys;", "work.sequence.keys",
                                   "problem.seqlen_k - first", ("backward",), ["--step", "backward", *VARLEN]),
    "slope_of_both_09": Fault("09_masks/step6_transposed.cuh", "return first(score, query); }", "first(score, query)",
                              "second(first(score, query), query)", ("backward",), ["--step", "backward", "--softcap", "2", "--alibi", "--causal"]),
    "no_penalty_after_the_cap_09": Fault("09_masks/step6_transposed.cuh", "return second(y, query); }", "second(y, query)", "y", ("backward",),
                                         ["--step", "backward", "--softcap", "2", "--alibi", "--causal"]),
    "drawn_at_the_transposed_place_09": Fault("09_masks/step6_backward_block.cuh",
                                              "score.dropout.bits(head.batch, head.head, query + 8 * group, first, key % 8 / 2);",
                                              "score.dropout.bits(head.batch, head.head, query + 8 * group, first, key % 8 / 2)",
                                              "score.dropout.bits(head.batch, head.head, key, (query + 8 * group) / 32 * 32, query % 8 / 2)", ("backward",),
                                              ["--step", "backward", "--dropout", "0.2", "--causal"]),
    "dp_is_not_dropped_09": Fault("09_masks/step6_backward_block.cuh", "dp[i] *= scores[i] < 0 ? 0.0f : score.dropout.factor;", "scores[i] < 0",
                                  "false", ("backward",), ["--step", "backward", "--dropout", "0.2", "--causal"]),
    "distance_turned_round_09": Fault("09_masks/step6_transposed.cuh", "return score + middle[min(max(own - query, -reach), reach)] * per_scale;",
                                      "own - query", "query - own", ("backward",), ["--step", "backward", *BIAS]),
    # Chapter 10: three ranks under a causal mask, so that there is an early hop, a late one, and one in between.
    "no_wait_10": Fault("10_many_gpus/step2_ring.h", "compute_.wait_for(here);", "compute_.wait_for(here);", "", ("zigzag",), EIGHT, AT_RANDOM),
    "reused_early_10": Fault("10_many_gpus/step2_ring.h", "copies_.wait_for(computed);", "copies_.wait_for(computed);", "", ("zigzag",), EIGHT, AT_RANDOM),
    "same_weight_10": Fault("10_many_gpus/merge.cuh", "carried = exp2_approx((carried_lse - top) * kLog2e);", "exp2_approx((carried_lse - top) * kLog2e)",
                            "1", ("ring", "zigzag", "carried"), RANKS),
    "final_too_early_10": Fault("10_many_gpus/step2_ring.h", "return least(hop + 1, int(first_.size()));", "hop + 1", "hop + 2", ("ring", "zigzag", "carried"), RANKS),
    "own_places_10": Fault("10_many_gpus/tokens.cuh", "return keys.before(queries.place(row) + shift + 1) - 1;", "queries.place(row)", "row", ("all_gather", "ring", "zigzag", "carried"),
                           RANKS),
    "first_tokens_10": Fault("10_many_gpus/step5_ulysses.h", "((entry * my_heads + head) * all_tokens + tokens.first[0]) * row_bytes", "tokens.first[0]", "0",
                             ("ulysses",), RANKS),
    "no_diagonal_10": Fault("10_many_gpus/tokens.cuh", "return int(places >= 0 ? places / ranks : -((ranks - 1 - places) / ranks));",
                            "places >= 0 ? places / ranks : -((ranks - 1 - places) / ranks)", "places / ranks", ("ring", "zigzag", "carried"), [*RANKS, "--order", "striped"]),
    "first_document_10": Fault("10_many_gpus/documents.cuh", "int first_key() const { return tile.key; }", "tile.key", "0", ("all_gather", "carried", "ulysses"), PACKED_RANKS),
    "final_too_early_documents_10": Fault("10_many_gpus/documents.h", "tile.until = least(hop + 1, keys.size());", "hop + 1", "hop + 2", ("carried",), PACKED_RANKS),
    "lost_sum_10": Fault("10_many_gpus/step6_backward.h", "if (hop > 1 && is_seen(hop)) add(", "hop > 1 && is_seen(hop)", "false", ("backward",), ["--step", "backward", *RANKS]),
    "no_scale_10": Fault("10_many_gpus/step6_sums.cuh", "const float factor = at < scaled ? scale : 1.0f;", "at < scaled ? scale : 1.0f", "1.0f", ("backward",),
                         ["--step", "backward", *RANKS]),
    "later_queries_10": Fault("10_many_gpus/step6_round.cuh", "return causal ? queries.before(keys.place(key) - shift) : 0;",
                              "queries.before(keys.place(key) - shift)", "min(key, seqlen_q)", ("backward",), ["--step", "backward", *RANKS]),
    "next_documents_queries_10": Fault("10_many_gpus/step6_round.cuh", "if (column < begin || column >= end)", "column >= end", "false", ("backward",),
                                       ["--step", "backward", *PACKED_RANKS]),
    "sum_left_behind_10": Fault("10_many_gpus/step6_backward.h", "std::swap(part, received_);", "std::swap(part, received_);", "", ("backward",),
                                ["--step", "backward", "--ranks", "3", "--seqlen", "200", "--causal", "--order", "contiguous"]),
    "no_weights_10": Fault("10_many_gpus/step7_cache.cuh", "const float weight = exp2_approx((part_lse[place] - top) * kLog2e);",
                           "exp2_approx((part_lse[place] - top) * kLog2e)", "1", ("decode",), ["--step", "decode", "--ranks", "3", "--seqlen", "1", "--seqlen-k", "300"]),
    # Shown in timelines (docs/figures/recorded/fault_traces.py), the second in steps of all later chapters.
    "same_parity_05": Fault("05_flash_attention_3/step1_single_warpgroup.cuh", "mbarrier_wait(&shared.landed, phase);", "phase", "0", (),
                            traced=["--step", "single_warpgroup", "--seqlen", "256", *SMALL], says="data race in block"),
    "never_released_05": Fault("common/hopper/pipeline.h", "if (threadIdx.x % 32 == 0) mbarrier_arrive(&pipeline.empty[state.stage]);",
                               "mbarrier_arrive(&pipeline.empty[state.stage]);", "", (),
                               traced=["--step", "overlap", "--seqlen", "192", "--seqlen-k", "640", *SMALL], says="deadlock in block"),
    "same_parity_08": Fault("08_decoding/step1_pack_gqa.cuh", "mbarrier_wait(&shared.landed, phase);", "phase", "0", (),
                            traced=["--step", "pack_gqa", "--seqlen", "1", "--seqlen-k", "300", *SMALL], says="data race in block"),
}


def below(file):
    """Returns a fault's file, from the repository's root."""
    return file if file.startswith("common/") else f"chapters/{file}"


def path_of(fault):
    return below(fault.file)


def shown(fault):
    """Returns where it is and what a page shows: (line number, the lines without the fault, the lines with it)."""
    text = (ROOT / path_of(fault)).read_text(encoding="utf-8")
    begin = text.index(fault.line) + fault.line.index(fault.old)
    start, end = text.rindex("\n", 0, begin) + 1, text.index("\n", begin + len(fault.old))
    line = text[start:end]
    changed = line[:begin - start] + fault.new + line[begin - start + len(fault.old):]
    changed = "" if changed.strip().startswith("//") else changed  # the comment of a removed statement is removed, too
    return text.count("\n", 0, begin) + 1, textwrap.dedent(line).strip(), textwrap.dedent(changed).strip()


def chosen(old, others):
    """Returns a choice between `old` and its replacements, {fault number: text}, that keeps line numbers."""
    others = {f"flashbook_fault == {index}": " ".join(new.split()) for index, new in others.items()}
    if old.rstrip().endswith((";", "}")):
        return "".join(f"if ({asked}) {{ {new} }} else " for asked, new in others.items()) + f"{{ {old} }}"
    return f"({''.join(f'{asked} ? ({new}) : ' for asked, new in others.items())}({old}))"


@dataclass
class Place:
    """A part of a file with faults."""
    begin: int
    end: int
    others: dict[int, str]  # {fault number: replacement}


def with_all(text, places, begin, end):
    """Returns a part of a file, with choices at those of these places that are in it. Places may be nested."""
    rest = sorted((place for place in places if begin <= place.begin and place.end <= end), key=lambda place: (place.begin, -place.end))
    parts, at = [], begin
    for place in rest:
        if place.begin < at:
            continue  # this place is within the previous one
        inner = with_all(text, [other for other in rest if other is not place], place.begin, place.end)
        parts += [text[at:place.begin], chosen(inner, place.others)]
        at = place.end
    return "".join([*parts, text[at:end]])


def of_chapter(chapter, faults):
    """Returns the faults whose names end in the chapter's number."""
    return {name: fault for name, fault in faults.items() if name.rpartition("_")[2] == chapter[:2]}


def lists():
    for number in sorted({name[-2:] for name in FAULTS}):
        faults = of_chapter(number, FAULTS)
        of = {"files": [path_of(fault) for fault in faults.values()],
              "wrong": [name for name, fault in faults.items() if fault.steps],
              "shown": [name for name, fault in faults.items() if fault.says and not fault.command],
              "ramp": [name for name, fault in faults.items() if fault.command]}
        for word, values in of.items():
            print(f"set({word}_{number} {' '.join(dict.fromkeys(values))})")


def plant(folder, faults, all_faults):
    """Writes the files that have these faults. A fault is identified by its index in the list of all."""
    files: dict[str, dict[tuple[int, int], Place]] = {}
    for name, fault in faults.items():
        path = path_of(fault)
        text = (ROOT / path).read_text(encoding="utf-8")
        places = files.setdefault(path, {})
        begin = place_of(text, fault.line, f"{name}, {path}") + place_of(fault.line, fault.old, name)
        span = (begin, begin + len(fault.old))
        places.setdefault(span, Place(*span, {})).others[list(all_faults).index(name)] = fault.new
    texts = {}
    for path, places in files.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        texts[path] = with_all(text, list(places.values()), 0, len(text))
    for file, text in texts.items():
        target = Path(folder) / file
        target.parent.mkdir(parents=True, exist_ok=True)
        head, pragma, rest = text.partition("#pragma once\n")
        line = f'#line {head.count(chr(10)) + 2} "{ROOT / file}"\n'  # gives the following lines the name of the chapter's own file
        text = f"{head}{pragma}extern const int flashbook_fault;\n{line}{rest}"
        if not target.exists() or target.read_text(encoding="utf-8") != text:  # files that include it need not be recompiled
            target.write_text(text, encoding="utf-8")
    # A file left over without a fault would be found before the chapter's own.
    for chapter in {Path(*Path(file).parts[:2]) for file in texts if file.startswith("chapters/")}:
        for left in (Path(folder) / chapter).rglob("*.*h"):
            if str(left.relative_to(folder)) not in texts:
                left.unlink()


def check(name, program, reports):
    fault = FAULTS[name]
    run = run_with(program, [*fault.options, "--reps", "1"], list(FAULTS).index(name), fault.environment)
    found = re.findall(r"^WRONG: step (\d+), (?:O|d[QKV]) against the oracle", run.stdout, re.M)
    wrong = tuple(ALL[int(name[-2:])][number - 1] for number in sorted({int(step) for step in found}))
    if run.returncode != 1 or wrong != fault.steps:
        raise Refused(f"{name}: {program} should call steps {fault.steps} wrong and exit with 1. It called {wrong} wrong and exited with "
                      f"{run.returncode}:\n{run.stdout}{run.stderr}")
    said = re.findall(r"^(WRONG: .* against the oracle.*)", run.stdout, re.M)
    (Path(reports) / f"{name}.txt").write_text("".join(line + "\n" for line in said), encoding="utf-8")


def said_of(run, expected):
    """Returns the first report that contains `expected`, without addresses, or the rows of the table of accesses that
    contain it."""
    lines = re.sub(r"0x[0-9a-f]{9,}", "0x...", re.sub(r"^\w+: launch <<<.*?>>>: ", "", run.stderr, flags=re.M)).splitlines()
    for number, line in enumerate(lines):
        if re.search(expected, line):
            details = itertools.takewhile(lambda text: text.startswith(" "), lines[number + 1:])
            return "".join(f"{text}\n" for text in [line, *details])
    rows = [line for line in run.stdout.splitlines() if re.search(expected, line) or line.startswith("  line ")]
    return "".join(f"{row.strip()}\n" for row in rows) if len(rows) > 1 else ""


def report(name, program, reports):
    fault = FAULTS[name]
    if run_with(program, fault.traced, -1, {}).returncode != 0:
        raise Refused(f"{name}: {program} {' '.join(fault.traced)} goes wrong without the fault")
    run = run_with(program, fault.traced, list(FAULTS).index(name), {})
    said = said_of(run, fault.says)
    if not said:
        raise Refused(f"{name}: {program} should say {fault.says!r}. It exited with {run.returncode}:\n{run.stdout}{run.stderr}")
    (Path(reports) / f"{name}.report").write_text(said, encoding="utf-8")


def main():
    command, *words = sys.argv[1:]
    try:
        if command == "plant":
            chapter, folder = words
            plant(folder, of_chapter(chapter, FAULTS), FAULTS)
        elif command == "lists":
            lists()
        else:
            {"check": check, "report": report}[command](*words)
    except Refused as reason:
        sys.exit(f"chapters.py: {reason}")


if __name__ == "__main__":
    main()
