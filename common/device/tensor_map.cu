#include <algorithm>
#include <string>

#include "common/device/device.h"
#include "common/device/tensor_map.h"
#ifdef __CUDACC__
#include <cudaTypedefs.h>
#endif

namespace flashbook::device {
namespace {

constexpr std::size_t kMaxRank = 5;
constexpr uint64_t kMaxSize = uint64_t(1) << 32;
constexpr uint64_t kMaxStride = uint64_t(1) << 40;
constexpr uint32_t kMaxBox = 256;
constexpr uint64_t kAlignment = 16;

std::string text_of(uint64_t number) { return std::to_string(number); }

[[noreturn]] void refuse(const std::string& rule) { throw DeviceError("tensor map: ", rule); }

/// Throws if CUDA would reject the map, and explains why, which CUDA does not. (CUDA Driver API,
/// cuTensorMapEncodeTiled)
void check(const TensorTiles& tiles) {
  const std::size_t rank = tiles.size.size();
  if (rank < 1 || rank > kMaxRank) refuse(text_of(rank) + " dimensions; a tensor has 1 to 5");
  if (tiles.stride.size() != rank - 1 || tiles.box.size() != rank)
    refuse(text_of(rank) + " sizes need " + text_of(rank - 1) + " strides and " + text_of(rank) +
           " box sizes; there are " + text_of(tiles.stride.size()) + " and " + text_of(tiles.box.size()));
  if (!tiles.base || reinterpret_cast<std::uintptr_t>(tiles.base) % kAlignment != 0)
    refuse("the tensor must begin at a multiple of 16 in device memory");
  for (std::size_t i = 0; i < rank; ++i) {
    const auto dimension = [i] { return "dimension " + text_of(i); };
    if (tiles.size[i] < 1 || tiles.size[i] > kMaxSize)
      refuse(dimension() + " has " + text_of(tiles.size[i]) + " elements; 1 to 2^32 are possible");
    if (tiles.box[i] < 1 || tiles.box[i] > kMaxBox)
      refuse(dimension() + " has a box of " + text_of(tiles.box[i]) + " elements; 1 to 256 are possible");
    if (i > 0 && (tiles.stride[i - 1] % kAlignment != 0 || tiles.stride[i - 1] >= kMaxStride))
      refuse(dimension() + " has a stride of " + text_of(tiles.stride[i - 1]) +
             " bytes; it must be a multiple of 16 below 2^40, so pad the rows");
  }
  const uint64_t row = tiles.box[0] * size_of(tiles.dtype);
  if (row % kAlignment != 0)
    refuse("a row of the box has " + text_of(row) + " bytes; it must be a multiple of 16");
  // CUDA also accepts rows shorter than the span, but does not document their layout in shared memory.
  const uint64_t span = swizzle_bytes(tiles.swizzle);
  if (tiles.swizzle != Swizzle::none && row != span)
    refuse("a row of the box has " + text_of(row) + " bytes; with this swizzle it must have " +
           text_of(span) + ". Split wider tiles into several boxes");
}

}  // namespace

#ifdef __CUDACC__

namespace {

/// Indexed by DType. TMA moves e4m3 as bytes.
constexpr CUtensorMapDataType kTypes[] = {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                                          CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_DATA_TYPE_UINT8};
/// Indexed by Swizzle.
constexpr CUtensorMapSwizzle kModes[] = {CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_32B,
                                         CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_SWIZZLE_128B};

/// Returns the driver's function, obtained from the runtime, since the program is not linked with the
/// driver's library, which a machine without a GPU lacks.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) {
    cudaGetLastError();
    throw HardwareMissing("the driver has no cuTensorMapEncodeTiled: TMA needs CUDA 12 and a Hopper GPU");
  }
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

}  // namespace

CUtensorMap tensor_map(const TensorTiles& tiles) {
  check(tiles);
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = encoder();
  const uint32_t side_by_side[kMaxRank] = {1, 1, 1, 1, 1};
  uint64_t stride[kMaxRank] = {};  // the driver refuses a null pointer even for a tensor without strides
  std::ranges::copy(tiles.stride, stride);
  CUtensorMap map;
  // Promotion is the amount of memory that the L2 fetches at a time. With 256 bytes, a kernel that keeps
  // memory busy takes up to 7 % longer than with the 128 of a row; a kernel that waits for each tile takes up
  // to 4 % less (as the appendix on decoding shows).
  const CUresult result = encode(&map, kTypes[int(tiles.dtype)], uint32_t(tiles.size.size()),
                                 const_cast<void*>(tiles.base), tiles.size.data(), stride, tiles.box.data(),
                                 side_by_side, CU_TENSOR_MAP_INTERLEAVE_NONE, kModes[int(tiles.swizzle)],
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw DeviceError("cuTensorMapEncodeTiled: error ", result,
                      ", although the map follows the documented rules");
  return map;
}

#else

CUtensorMap tensor_map(const TensorTiles& tiles) {
  check(tiles);
  CUtensorMap map{};
  map.mark = sim::MapMark::map;
  map.element_bytes = uint16_t(size_of(tiles.dtype));
  map.rank = uint8_t(tiles.size.size());
  map.swizzle_bytes = uint8_t(swizzle_bytes(tiles.swizzle));
  map.base = static_cast<unsigned char*>(const_cast<void*>(tiles.base));
  map.stride[0] = map.element_bytes;
  for (std::size_t i = 0; i < map.rank; ++i) {
    map.size[i] = tiles.size[i];
    if (i > 0) map.stride[i] = tiles.stride[i - 1];
    map.box[i] = uint16_t(tiles.box[i]);
  }
  return map;
}

#endif

}  // namespace flashbook::device
