/// \file
/// The kernels of this suite without faults.
#include <stdexcept>
#include <string>

#include "tests/mutation/bulk_sums.cuh"
#include "tests/mutation/gradients.cuh"
#include "tests/mutation/hopper_attention.cuh"
#include "tests/mutation/mma_attention.cuh"
#include "tests/mutation/named_barriers.cuh"
#include "tests/mutation/split_keys.cuh"
#include "tests/mutation/subject.h"
#include "tests/mutation/tile_queue.cuh"
#include "tests/mutation/tiled_attention.cuh"
#include "tests/mutation/tma_epilogue.cuh"

namespace flashbook::mutation {
namespace {

constexpr Kernel kKernels[] = {
    {"tiled_attention", DType::f32, 100, 200, &tiled_attention::run<64>, &tiled_attention::run<128>},
    {"split_keys", DType::f32, 5, 200, &split_keys::run<64>, &split_keys::run<128>},
    {"named_barriers", DType::f32, 150, 200, &named_barriers::run<64>, nullptr},
    {"mma_attention", DType::bf16, 100, 200, &mma_attention::run<64>, &mma_attention::run<128>},
    {"tma_epilogue", DType::bf16, 200, 50, &tma_epilogue::run<64>, nullptr},
    {"bulk_sums", DType::f32, 20, 70, &bulk_sums::run<64>, nullptr},
    {"tile_queue", DType::f32, 20, 70, &tile_queue::run<64>, nullptr},
    {"hopper_attention", DType::bf16, 200, 333, &hopper_attention::run<64>, &hopper_attention::run<128>},
    {"gradients", DType::bf16, 300, 300, &backward::run<64>, &backward::run<128>, Operation::backward,
     &backward::workspace_bytes, true},
};

}  // namespace

std::span<const Kernel> kernels() { return kKernels; }

const Kernel& kernel_named(std::string_view name) {
  for (const Kernel& kernel : kernels())
    if (kernel.name == name) return kernel;
  throw std::out_of_range("kernels.cu lists no kernel named " + std::string(name));
}

}  // namespace flashbook::mutation
