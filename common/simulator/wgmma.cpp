#include "common/simulator/wgmma.h"

#include <string>

#include "common/simulator/block/worker.h"
#include "common/simulator/describe.h"
#include "common/simulator/launch.h"

namespace flashbook::sim {
namespace {

/// Computes some of the issued or committed products, as Options::async requires.
void run_some(WgmmaQueue& products, Random& random) {
  const Async when = options().async;
  if (when == Async::eager) products.compute(products.pending());
  if (when == Async::random) products.compute(random.below(products.pending() + 1));
}

constexpr WarpgroupCollective kIssue{
    "wgmma", [](WgmmaQueue& products, Random& random, void* const* operands, Location where) {
      products.issue(operands, where);
      run_some(products, random);
    }};

constexpr WarpgroupCollective kFence{"wgmma_fence", [](WgmmaQueue& products, Random&, void* const*,
                                                       Location where) { products.fence(where); }};

constexpr WarpgroupCollective kCommit{"wgmma_commit",
                                      [](WgmmaQueue& products, Random& random, void* const*, Location where) {
                                        products.commit(where);
                                        run_some(products, random);
                                      }};

constexpr WarpgroupCollective kWait{"wgmma_wait",
                                    [](WgmmaQueue& products, Random&, void* const* operands, Location where) {
                                      products.wait(*static_cast<const int*>(operands[0]), where);
                                    }};

void gather(const WarpgroupCollective& collective, void* operand, Location where) {
  running_worker(collective.name, where).warpgroups.gather(collective, operand, where);
}

}  // namespace

uint32_t wgmma_tile_address(const void* tile, uint32_t leading_bytes, uint32_t stride_bytes, Location where) {
  constexpr const char* kWhat = "wgmma_descriptor";
  constexpr uint32_t kDistances = 1 << 18;  // a descriptor stores a distance as a 14-bit multiple of 16
  if (leading_bytes % 16 || stride_bytes % 16 || leading_bytes >= kDistances || stride_bytes >= kDistances)
    throw Error(describe_call(kWhat, where) + " gets leading_bytes " + std::to_string(leading_bytes) +
                " and stride_bytes " + std::to_string(stride_bytes) + ": give multiples of 16 below 262144");
  Worker& worker = running_worker(kWhat, where);
  const auto offset = std::uintptr_t(tile) - std::uintptr_t(worker.memory.dynamic().data());
  if (offset >= kMaxSharedBytes)
    throw Error(describe_call(kWhat, where) + ": " + worker.memory.describe(tile) +
                " is not in dynamic shared memory, where the simulator requires tiles for wgmma");
  if (offset % 16)
    throw Error(describe_call(kWhat, where) + ": misaligned address, " + worker.memory.describe(tile) +
                " is not a multiple of 16");
  return uint32_t(offset);
}

void wgmma(const WgmmaKind& kind, float* d, const uint32_t* a_registers, uint64_t a, uint64_t b,
           bool accumulate, Location where) {
  WgmmaCall call{kind, d, a_registers, a, b, accumulate};
  gather(kIssue, &call, where);
}

void wgmma_fence(Location where) { gather(kFence, nullptr, where); }

void wgmma_commit(Location where) { gather(kCommit, nullptr, where); }

void wgmma_wait(int groups_in_flight, Location where) { gather(kWait, &groups_in_flight, where); }

}  // namespace flashbook::sim
