#include <array>

#include "bench/ablation.h"
#include "chapters/08_decoding/host/chapter.h"
#include "chapters/08_decoding/host/rules.h"
#include "chapters/08_decoding/host/switches.cuh"

namespace flashbook {
namespace {

using namespace decoding;

void run_row(const Shape& shape, const Tensors& tensors, device::Stream stream, int which) {
  using Traits = RingKernelTraits<128, 1>;
  const auto run = [&]<typename Version>() { run_turned<__nv_bfloat16, Version>(shape, tensors, stream); };
  switch (which) {
    case 1:
      return run.template operator()<AsItIs<Traits>>();
    case 2:
      return run.template operator()<TileByTile<Traits>>();
    case 3:
      return run.template operator()<TwoStages<Traits>>();
    case 4:
      return run.template operator()<SixStages<Traits>>();
    case 5:
      return run.template operator()<SixtyFourRows<Traits>>();
    case 6:
      return run.template operator()<SecondKernel<Traits>>();
  }
}

std::string why_not(const Shape& shape) {
  if (shape.dtype != DType::bf16) return kOnlyBf16;
  if (shape.head_dim != 128 || decoding::has_rules(shape) ||
      shape.heads / shape.kv_heads * shape.seqlen_q > 16)
    return "the ablation of decoding is of d = 128 and up to 16 rows, without rules: choose such a shape";
  return kDecoding.step(4).why_not(shape);
}

template <int kWhich>
void run(const Shape& shape, const Tensors& tensors, device::Stream stream) {
  run_row(shape, tensors, stream, kWhich);
}

int64_t zeroed_bytes(const Shape&) { return kArrivalBytes; }

std::array<Step, 7> rows() {
  Step step = kDecoding.step(4);
  step.workspace = turned_workspace_bytes, step.zeroed = zeroed_bytes;
  return {row(step, "as_it_is", "Step 4 as it is.", why_not, run<1>),
          row(step, "tile_by_tile", "The next tile when all is done with this one.", why_not, run<2>),
          row(step, "two_stages", "A ring of two stages.", why_not, run<3>),
          row(step, "six_stages", "A ring of six stages.", why_not, run<4>),
          row(step, "sixty_four_rows", "Tiles of 64 rows.", why_not, run<5>),
          row(step, "second_kernel", "Parts merged by a second kernel.", why_not, run<6>),
          before(kDecoding.step(3))};
}

}  // namespace

std::span<const Step> ablation_08() {
  static const auto found = rows();
  return found;
}

}  // namespace flashbook
