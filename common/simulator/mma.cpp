#include "common/simulator/mma.h"

#include "common/simulator/tensor_core.h"
#include "common/simulator/warp.h"

namespace flashbook::sim {
namespace {

/// One lane's operands.
struct Operand {
  float* d;
  const uint32_t *a, *b;
  const float* c;
};

/// Lane l is thread l % 4 of group l / 4. A group holds one row of a, c and d, the row 8 below that one, and
/// a column of b; each thread holds pairs of adjacent elements.
template <DType kType>
void multiply(void* const* operands, uint32_t, Location) {
  uint16_t a[16][16], b[16][8];
  float d[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& mine = *static_cast<const Operand*>(operands[lane]);
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int i = 0; i < 2; ++i) {
      const auto half = [i](uint32_t halves) { return uint16_t(halves >> 16 * i); };
      a[group][pair + i] = half(mine.a[0]);
      a[group + 8][pair + i] = half(mine.a[1]);
      a[group][pair + 8 + i] = half(mine.a[2]);
      a[group + 8][pair + 8 + i] = half(mine.a[3]);
      b[pair + i][group] = half(mine.b[0]);
      b[pair + 8 + i][group] = half(mine.b[1]);
      d[group][pair + i] = mine.c[i];
      d[group + 8][pair + i] = mine.c[2 + i];
    }
  }
  multiply_accumulate(kType, a, b, d);
  for (int lane = 0; lane < 32; ++lane) {
    float* mine = static_cast<const Operand*>(operands[lane])->d;
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int i = 0; i < 2; ++i) {
      mine[i] = d[group][pair + i];
      mine[2 + i] = d[group + 8][pair + i];
    }
  }
}

constexpr Collective kMmaF16{"mma_m16n8k16<__half>", &multiply<DType::f16>, true};
constexpr Collective kMmaBf16{"mma_m16n8k16<__nv_bfloat16>", &multiply<DType::bf16>, true};

}  // namespace

void mma_m16n8k16(DType type, float* d, const uint32_t* a, const uint32_t* b, const float* c,
                  Location where) {
  Operand operand{d, a, b, c};
  warp_collective(type == DType::f16 ? kMmaF16 : kMmaBf16, kAllLanes, &operand, where);
}

}  // namespace flashbook::sim
