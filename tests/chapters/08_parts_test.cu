// Chapter 8's parts: any number of them, merged by a second kernel or by a tree of last arrivers, with fewer
// and with more blocks than multiprocessors.
#include <gtest/gtest.h>

#include <algorithm>

#include "chapters/08_decoding/host/rules_launch.cuh"
#include "common/app/call.h"
#include "common/attention/check.h"
#include "common/attention/inputs.h"
#include "tests/require_gpu.h"

namespace flashbook::testing {
namespace {

using namespace decoding;

class Parts : public MachineTest {};
using TracedParts = Parts;

constexpr int kHeads = 4, kHeadDim = 128;

/// Returns a problem with four heads that share their keys.
Spec spec_with(std::vector<int> lengths, int seqlen_q = 1) {
  return {{.batch = int(lengths.size()),
           .heads = kHeads,
           .kv_heads = 1,
           .seqlen_q = seqlen_q,
           .seqlen_k = std::max(1, *std::ranges::max_element(lengths)),
           .head_dim = kHeadDim,
           .dtype = DType::bf16,
           .scale = default_scale(kHeadDim)},
          {.lengths = lengths}};
}

/// A call with its own memory, so that the test can inspect the workspace.
struct OwnCall {
  UploadedInputs inputs;
  device::Buffer o, lse, workspace;
  Tensors tensors;

  OwnCall(const Spec& spec, const Inputs& values, int64_t workspace_bytes)
      : inputs(Operation::decode, spec, values, device::Place::device),
        o(device::Place::device, spec.q_elements() * 2),
        lse(device::Place::device, spec.q_rows() * 4),
        workspace(device::Place::device, workspace_bytes),
        tensors(inputs.tensors()) {
    tensors.o = o.data();
    tensors.lse = static_cast<float*>(lse.data());
    tensors.workspace = workspace.data();
  }

  static std::vector<std::byte> bytes_of(const device::Buffer& buffer) {
    std::vector<std::byte> bytes(buffer.bytes());
    buffer.download(bytes);
    return bytes;
  }
  Outputs outputs() const { return {decode(DType::bf16, bytes_of(o)), decode(DType::f32, bytes_of(lse))}; }
};

TEST_F(Parts, OfAnyNumberAreMergedByASecondKernel) {
  for (const Spec& spec : {spec_with({1500}), spec_with({0, 1, 700})}) {
    const Inputs inputs = make_inputs(spec, InputKind::drifting, 2);
    const Reference reference = make_reference(spec, inputs, all_rows(spec));
    for (int parts : {1, 2, 7, 33, 128}) {
      SCOPED_TRACE(std::to_string(parts) + " parts");
      OwnCall run(spec, inputs, partial_bytes(spec, parts));  // poisoned
      run_pack_gqa<__nv_bfloat16, kHeadDim>(spec, run.tensors, nullptr, kHeads, parts);
      device::synchronize();
      EXPECT_TRUE(check(spec, reference, run.outputs()).ok());
    }
  }
}

/// Launches the ring on `blocks` blocks, twice in the same workspace.
template <typename Traits = RingKernelTraits<RingSizes{.head_dim = kHeadDim}>>
void expect_ring_right(const Spec& spec, const RingLaunch& launch) {
  SCOPED_TRACE(describe(spec) + ", " + std::to_string(launch.blocks) + " blocks");
  const Inputs inputs = make_inputs(spec, InputKind::drifting, 2);
  const Reference reference = make_reference(spec, inputs, all_rows(spec));
  const int64_t bytes = std::max<int64_t>(kArrivalBytes, ring_workspace_bytes(spec, launch));
  OwnCall run(spec, inputs, bytes);
  std::vector<std::byte> fresh(bytes, std::byte(kPoison));
  std::fill_n(fresh.begin(), kArrivalBytes, std::byte(0));
  run.workspace.upload(fresh);
  std::vector<std::byte> first;
  for (int i = 0; i < 2; ++i) {
    run.o.poison();
    run_ring<__nv_bfloat16, Traits>(spec, run.tensors, nullptr, launch);
    device::synchronize();
    EXPECT_TRUE(check(spec, reference, run.outputs()).ok()) << "launch " << i + 1;
    const std::vector<std::byte> after = OwnCall::bytes_of(run.workspace), o = OwnCall::bytes_of(run.o);
    for (int64_t byte = 0; byte < kArrivalBytes; ++byte)
      ASSERT_EQ(after[byte], std::byte(0)) << "a counter is left at byte " << byte;
    if (i == 1) {
      EXPECT_TRUE(o == first) << "the second launch gives different bits";
    }
    first = o;
  }
}

RingLaunch equal_parts(const Spec& spec, int parts) {
  RingLaunch launch = ring_launch(spec, false);
  launch.plan.parts = parts;
  launch.blocks = spec.batch * parts;
  return launch;
}

RingLaunch equal_work(const Spec& spec, int blocks) {
  RingLaunch launch = ring_launch(spec, true);
  launch.blocks = blocks;
  return launch;
}

// Numbers of parts: one, fewer than a merge takes at once, as many, one more, and more than there are tiles.
TEST_F(Parts, OfAnyNumberAreMergedByTheLastToArrive) {
  for (int parts : {1, 16, 17, 128}) {
    expect_ring_right(spec_with({1500}), equal_parts(spec_with({1500}), parts));
    expect_ring_right(spec_with({0, 1, 700}, 3), equal_parts(spec_with({0, 1, 700}, 3), parts));
  }
}

// Blocks begin and end anywhere in a sequence; some have a dozen sequences, some none.
TEST_F(Parts, OfEqualWorkAreThoseOfAnyNumberOfBlocks) {
  const std::vector<int> many = {300, 1, 0, 129, 128, 5000, 0, 0, 64, 1, 2, 3, 257, 0};
  for (int blocks : {1, 5, 50, 132})
    for (const Spec& spec : {spec_with({7000}), spec_with(many, 2)})
      expect_ring_right(spec, equal_work(spec, blocks));
}

TEST_F(TracedParts, AreHandedFromBlockToBlock) {
  expect_ring_right(spec_with({1100}), equal_parts(spec_with({1100}), 3));
  RingLaunch whole = equal_parts(spec_with({300, 0, 129}), 1);
  whole.blocks = 2;
  expect_ring_right(spec_with({300, 0, 129}), whole);
  expect_ring_right<RingKernelTraits<RingSizes{.head_dim = kHeadDim, .blocks = 2}>>(spec_with({300, 0, 129}),
                                                                                    whole);
  expect_ring_right(spec_with({2600, 0, 300}, 2), equal_work(spec_with({2600, 0, 300}, 2), 20));
}

}  // namespace
}  // namespace flashbook::testing
