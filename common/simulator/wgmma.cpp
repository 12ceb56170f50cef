#include "common/simulator/wgmma.h"

#include <string>

#include "common/simulator/scheduler.h"

namespace flashbook::sim {
namespace {

/// Products that are issued or committed run when Options::async says.
void run_some(Worker& worker, WgmmaQueue& products) {
  const Async when = options().async;
  if (when == Async::eager) products.compute(products.pending());
  if (when == Async::random) products.compute(worker.random_below(products.pending() + 1));
}

constexpr WarpgroupCollective kIssue{
    "wgmma", [](Worker& worker, int warpgroup, void* const* operands, Location where) {
      WgmmaQueue& products = worker.products_of(warpgroup);
      products.issue(operands, where);
      run_some(worker, products);
    }};

constexpr WarpgroupCollective kFence{"wgmma_fence", [](Worker& worker, int warpgroup, void* const*,
                                                       Location) { worker.products_of(warpgroup).fence(); }};

constexpr WarpgroupCollective kCommit{"wgmma_commit",
                                      [](Worker& worker, int warpgroup, void* const*, Location) {
                                        WgmmaQueue& products = worker.products_of(warpgroup);
                                        products.commit();
                                        run_some(worker, products);
                                      }};

constexpr WarpgroupCollective kWait{
    "wgmma_wait", [](Worker& worker, int warpgroup, void* const* operands, Location where) {
      worker.products_of(warpgroup).wait(*static_cast<const int*>(operands[0]), where);
    }};

}  // namespace

uint32_t wgmma_tile_address(const void* tile, uint32_t leading_bytes, uint32_t stride_bytes, Location where) {
  constexpr const char* kWhat = "wgmma_descriptor";
  constexpr uint32_t kDistances = 1 << 18;  // a descriptor has 14 bits for a multiple of 16
  if (leading_bytes % 16 || stride_bytes % 16 || leading_bytes >= kDistances || stride_bytes >= kDistances)
    throw Error(describe_call(kWhat, where) + " gets leading_bytes " + std::to_string(leading_bytes) +
                " and stride_bytes " + std::to_string(stride_bytes) + ": give multiples of 16 below 262144");
  Worker& worker = running_worker(kWhat, where);
  const auto offset = std::uintptr_t(tile) - std::uintptr_t(worker.dynamic_shared());
  if (offset >= kMaxSharedBytes)
    throw Error(describe_call(kWhat, where) + ": " + worker.describe_address(tile) +
                " is not in dynamic shared memory, where the simulator wants tiles for wgmma");
  if (offset % 16)
    throw Error(describe_call(kWhat, where) + ": misaligned address, " + worker.describe_address(tile) +
                " is not a multiple of 16");
  return uint32_t(offset);
}

void wgmma(const WgmmaKind& kind, float* d, const uint32_t* a_registers, uint64_t a, uint64_t b,
           bool accumulate, Location where) {
  WgmmaCall call{kind, d, a_registers, a, b, accumulate};
  warpgroup_collective(kIssue, &call, where);
}

void wgmma_fence(Location where) { warpgroup_collective(kFence, nullptr, where); }

void wgmma_commit(Location where) { warpgroup_collective(kCommit, nullptr, where); }

void wgmma_wait(int groups_in_flight, Location where) {
  warpgroup_collective(kWait, &groups_in_flight, where);
}

}  // namespace flashbook::sim
