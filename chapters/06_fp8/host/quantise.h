/// \file
/// Quantises an f16 or bf16 tensor to e4m3 on the device of the build, optionally rotated first and without
/// the means of its columns.
#pragma once
#include <cstdint>
#include <optional>

#include "common/attention/layout.h"
#include "common/device/device.h"
#include "common/numeric/dtype.h"

namespace flashbook {

/// A tensor and the destination of its encoding. Pointers refer to device memory.
struct Quantisation {
  DType dtype;         ///< f16 or bf16
  int batch, heads;    ///< in the tensor
  int rows;            ///< per head
  int head_dim;        ///< 64, 128 or 256
  int rows_of_scale;   ///< 64 or 128: a scale per tile of this many rows; 0: a scale per `heads_of_scale`
                       ///< heads
  int heads_of_scale;  ///< divides batch * heads, which is one scale for the tensor. Unused for tiles
  std::optional<uint64_t> rotation;  ///< rows are rotated by the matrix of this seed before; tensors of one
                                     ///< seed by the same
  Strides strides;                   ///< for `values` and `encoded`, multiples of 8
  const void* values;                ///< [batch, heads, rows, head_dim], finite
  void* encoded;                     ///< e4m3 [batch, heads, rows, head_dim]; element times scale = value
  float* scales;                     ///< [batch * heads, tiles] or [batch * heads / heads_of_scale]; > 0
  float* means = nullptr;  ///< [batch * heads, head_dim]: what is taken from each column, after the rotation.
                           ///< Null: nothing
  void* workspace = nullptr;  ///< mean_workspace_bytes, 16-byte aligned; null without means
};

/// Returns the bytes of temporary memory needed to compute the means of a tensor's columns.
int64_t mean_workspace_bytes(int64_t columns);

/// Returns the number of scales.
int64_t scales_of(const Quantisation& tensor);

/// Launches the kernels on `stream`.
void quantise(const Quantisation& tensor, device::Stream stream);

}  // namespace flashbook
