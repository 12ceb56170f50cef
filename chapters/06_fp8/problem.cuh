//| # The problem
//|
//| ![Q has a scale for each 64 rows, K and V one for each 128](../../docs/figures/block_scales.svg)
#pragma once
#include "common/hopper/problem.h"

namespace flashbook::fp8 {

using namespace hopper;  // chapter 5's building blocks, in common/hopper

//| ## The problem, as a kernel sees it
//|
//| It is as in chapter 5, and everything unchanged is in `common/hopper`: the problem's shape, the pipeline
//| of stages and phases, the tile scheduler, pingpong, the rows of an accumulator. The scales are new: an
//| element of Q, K or V stands for its encoding times the scale of its block of rows. The means are new as
//| well: if the quantiser subtracted the mean of each column of K or V (`quantise.cuh`), the epilogue adds it
//| back (`epilogue.cuh`).

/// The scales of one tensor.
struct Scales {
  const float* scale;  ///< null: all are 1
  int per_head;        ///< scales per head: 0 if all heads share one
  int per_block;       ///< 1 if each block of rows has a scale, else 0

  /// Returns the scale of block `block` of a head's rows.
  __device__ __forceinline__ float at(int head, int block) const {
    return scale == nullptr ? 1.0f : __ldg(scale + int64_t(head) * per_head + block * per_block);
  }
};

/// Chapter 5's problem with scales and means.
struct Problem : hopper::Problem {
  Scales q_scale;           ///< by query head and block of 64 rows, or by key head
  bool q_by_kv_head;        ///< whether q_scale is by key head
  Scales k_scale, v_scale;  ///< by key head and block of 128 rows
  const float* k_mean;      ///< [key heads, head_dim], of columns; null: nothing was subtracted
  const float* v_mean;      ///< [key heads, head_dim], of columns; null: nothing was subtracted

  /// Returns the key head whose scales a query head uses, counted over batch and heads together.
  __device__ int scale_head(Head q) const { return number(q) / group; }
};

//| From step 7 on V is transposed once, for all blocks (`step7_transpose_once.cuh`): into the workspace, in
//| the pieces that consumers multiply.

/// The transposed V of all key heads, in global memory, and how much of it is complete.
struct TransposedValues {
  unsigned char* first;            ///< [key heads, pieces_of_head] pieces, in the layout of shared memory
  int* taken;                      ///< pieces that some block works on or has done; 0 at the start
  int* done;                       ///< [key heads]: pieces in memory; 0 at the start
  device::Divisor pieces_of_head;  ///< per key head
  int pieces;                      ///< in total

  /// Returns a piece of this many bytes.
  __device__ __forceinline__ unsigned char* piece(int number, uint32_t bytes) const {
    return first + int64_t(number) * bytes;
  }
};

}  // namespace flashbook::fp8
