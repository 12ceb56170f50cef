#include "chapters/00_the_machine/additions.cuh"
#include "chapters/00_the_machine/host/wgmma.h"
#include "chapters/00_the_machine/warpgroup_products.cuh"
#include "common/device/launch.h"

namespace flashbook::machine {

const double kWgmmaFlopsPerRound = double(kWgmmaFlops) * kProductsPerGroup;

float wgmma_element(int rounds) {
  return 16.0f * kProductsPerGroup * float(rounds);
}  // 16 products of 1 by 1 each

void launch_warpgroup_products(int blocks, int rounds, float* sums, int64_t* clocks) {
  device::launch(warpgroup_products, dim3(unsigned(blocks)), dim3(kWgmmaThreads), sizeof(OnesShared), nullptr,
                 rounds, sums, clocks);
}

void launch_additions(Adds how, int blocks, float* sums, int tiles, int rounds) {
  const auto kernel = how == Adds::floats  ? add_ones<Adds::floats>
                      : how == Adds::fours ? add_ones<Adds::fours>
                                           : add_ones<Adds::tiles>;
  device::launch(kernel, dim3(unsigned(blocks)), dim3(kAddThreads),
                 how == Adds::tiles ? kAddedFloats * sizeof(float) : 0, nullptr, sums, tiles, rounds);
}

}  // namespace flashbook::machine
