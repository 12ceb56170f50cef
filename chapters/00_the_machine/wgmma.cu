#include "chapters/00_the_machine/wgmma.cuh"
#include "chapters/00_the_machine/wgmma.h"
#include "common/device/launch.h"

namespace flashbook::machine {

const double kWgmmaFlopsOfRound = double(kWgmmaFlops) * kProductsOfGroup;

float wgmma_element(int rounds) {
  return 16.0f * kProductsOfGroup * float(rounds);
}  // 16 products of 1 by 1 each

void launch_warpgroup_products(int blocks, int rounds, float* sums, int64_t* clocks) {
  device::launch(warpgroup_products, dim3(unsigned(blocks)), dim3(kWgmmaThreads), sizeof(OnesShared), nullptr,
                 rounds, sums, clocks);
}

}  // namespace flashbook::machine
