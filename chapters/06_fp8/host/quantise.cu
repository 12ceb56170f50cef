#include "chapters/06_fp8/host/quantise.h"
#include "chapters/06_fp8/quantise.cuh"
#include "common/attention/random.h"
#include "common/device/dispatch.h"
#include "common/device/launch.h"

namespace flashbook {
namespace {

using namespace quantiser;

constexpr int kScaleThreads = 256;  // per block, in kernels with one thread per scale or per column

int tiles_of(const Quantisation& tensor, int rows) { return ceil_div(tensor.rows, rows); }

/// Returns the signs that belong to a seed, the same on every machine.
template <int kHeadDim>
Signs<kHeadDim> signs_of(uint64_t seed) {
  Signs<kHeadDim> signs;
  for (int byte = 0; byte < kHeadDim / kColumns; ++byte)
    signs.negative[byte] = uint8_t(random_bits(seed, byte) >> 56);
  return signs;
}

template <typename T, int kHeadDim, int kRows, bool kRotate>
void launch_all(const Quantisation& tensor, device::Stream stream) {
  const Source<T, kHeadDim, kRows> source{static_cast<const T*>(tensor.values), tensor.strides, tensor.heads,
                                          tensor.rows, tiles_of(tensor, kRows)};
  const auto signs = signs_of<kHeadDim>(tensor.rotation.value_or(0));
  auto* const encoded = static_cast<uint8_t*>(tensor.encoded);
  const dim3 grid(tensor.batch * tensor.heads * source.tiles), block(kThreads<kHeadDim, kRows>);
  const bool by_tile = tensor.rows_of_scale != 0;
  const int scales = int(scales_of(tensor));
  const dim3 scale_grid(ceil_div(scales, kScaleThreads));
  if (!by_tile) device::launch(clear_largest, scale_grid, kScaleThreads, 0, stream, tensor.scales, scales);
  if (tensor.means != nullptr) {
    auto* const found = static_cast<Column*>(tensor.workspace);
    const int columns = tensor.batch * tensor.heads * kHeadDim;
    const dim3 column_grid(ceil_div(columns, kScaleThreads));
    device::launch(clear_columns, column_grid, kScaleThreads, 0, stream, found, columns);
    device::launch(measure_columns<T, kHeadDim, kRows, kRotate>, grid, block, 0, stream, source, signs,
                   found);
    device::launch(means_of_columns, column_grid, kScaleThreads, 0, stream, found, columns, tensor.rows,
                   tensor.heads_of_scale * kHeadDim, tensor.means, by_tile ? nullptr : tensor.scales);
  } else if (!by_tile) {
    device::launch(find_largest<T, kHeadDim, kRows, kRotate>, grid, block, 0, stream, source, signs,
                   tensor.heads_of_scale, tensor.scales);
  }
  if (by_tile) {
    device::launch(quantise_tiles<T, kHeadDim, kRows, kRotate>, grid, block, 0, stream, source, signs,
                   tensor.means, encoded, tensor.scales);
    return;
  }
  device::launch(quantise_heads<T, kHeadDim, kRows, kRotate>, grid, block, 0, stream, source, signs,
                 tensor.heads_of_scale, tensor.means, tensor.scales, encoded);
  device::launch(largest_to_scale, scale_grid, kScaleThreads, 0, stream, tensor.scales, scales);
}

}  // namespace

int64_t mean_workspace_bytes(int64_t columns) { return columns * int64_t(sizeof(Column)); }

int64_t scales_of(const Quantisation& tensor) {
  if (tensor.rows_of_scale == 0) return int64_t(tensor.batch) * tensor.heads / tensor.heads_of_scale;
  return int64_t(tensor.batch) * tensor.heads * tiles_of(tensor, tensor.rows_of_scale);
}

void quantise(const Quantisation& tensor, device::Stream stream) {
  device::with_16_bit_type_and_head_dim(tensor.dtype, tensor.head_dim, [&]<typename T, int kHeadDim>() {
    const auto with_rows = [&]<int kRows>() {
      tensor.rotation ? launch_all<T, kHeadDim, kRows, true>(tensor, stream)
                      : launch_all<T, kHeadDim, kRows, false>(tensor, stream);
    };
    tensor.rows_of_scale == 128 ? with_rows.template operator()<128>() : with_rows.template operator()<64>();
  });
}

}  // namespace flashbook
