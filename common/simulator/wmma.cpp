#include "common/simulator/wmma.h"

#include <cstring>
#include <string>

#include "common/simulator/block/addresses.h"
#include "common/simulator/block/describe.h"
#include "common/simulator/block/worker.h"
#include "common/simulator/launch.h"
#include "common/simulator/tensor_core.h"

namespace flashbook::sim {
namespace {

constexpr int kSide = 16;
constexpr int kElements = kSide * kSide;
constexpr int kSlots = kElements / kWarpLanes;  ///< different elements that a lane holds

/// Which element of the matrix a place in a fragment holds.
class Layout {
 public:
  /// A layout for every seed and use: slots are numbered by an odd multiple and an offset, so that each
  /// number from 0 to 255 appears once.
  explicit Layout(FragmentUse use) {
    Random random(options().seed * 3 + uint64_t(use));
    multiple_ = 2 * random.below(kElements / 2) + 1;
    offset_ = random.below(kElements);
  }
  int element(int lane, int place) const {
    return ((lane * kSlots + place % kSlots) * multiple_ + offset_) % kElements;
  }
  int row(int lane, int place) const { return element(lane, place) / kSide; }
  int column(int lane, int place) const { return element(lane, place) % kSide; }

 private:
  int multiple_, offset_;
};

/// Which lane moves what is not for a kernel to know. It is told as if the warp took the matrix 16 bytes a
/// lane, 16 lines side by side.
void tell_observer(Access access, const char* what, const unsigned char* matrix, const FragmentInMemory& of,
                   Location where) {
  const Worker& worker = running_worker(what, where);
  Observer* observer = worker.observer();
  if (!observer) return;
  constexpr std::size_t kPiece = 16;
  const std::size_t line_bytes = kSide * std::size_t(of.element_bytes);
  const int first_lane = worker.scheduler.current().warp * kWarpLanes;
  int piece = 0;
  for (std::size_t at = 0; at < line_bytes; at += kPiece)
    for (int line = 0; line < kSide; ++line, ++piece)
      observer->touches(first_lane + piece % kWarpLanes,
                        {access, matrix + std::size_t(line) * of.stride * std::size_t(of.element_bytes) + at,
                         kPiece, what, where});
}

template <bool kLoad>
void move(void* const* operands, uint32_t, Location where) {
  const auto& first = *static_cast<const FragmentInMemory*>(operands[0]);
  const char* what = kLoad ? "load_matrix_sync" : "store_matrix_sync";
  const auto size = std::size_t(first.element_bytes);
  // CUDA programming guide, "Warp Matrix Functions".
  if (first.stride * size % 16 != 0)
    throw Error(describe_call(what, where) + " has a stride of " + std::to_string(first.stride) +
                " elements: it must be a multiple of 16 bytes");
  for (int lane = 1; lane < kWarpLanes; ++lane) {
    const auto& other = *static_cast<const FragmentInMemory*>(operands[lane]);
    if (other.matrix != first.matrix || other.stride != first.stride || other.rows != first.rows)
      throw Error(describe_call(what, where) + ": lane " + std::to_string(lane) +
                  " names another matrix, stride or layout than lane 0");
  }
  auto* matrix = static_cast<unsigned char*>(first.matrix);
  constexpr std::size_t kAlignment = 32;
  for (int line = 0; line < kSide; ++line)
    require_shared_or_global(what, matrix + std::size_t(line) * first.stride * size, kSide * size,
                             line == 0 ? kAlignment : 1, where);

  tell_observer(kLoad ? Access::load : Access::store, what, matrix, first, where);
  const Layout layout(first.use);
  const int places = first.use == FragmentUse::accumulator ? kSlots : 2 * kSlots;
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    auto* elements =
        static_cast<unsigned char*>(static_cast<const FragmentInMemory*>(operands[lane])->elements);
    for (int place = 0; place < places; ++place) {
      const int row = layout.row(lane, place), column = layout.column(lane, place);
      const std::size_t index = first.rows ? std::size_t(row) * first.stride + std::size_t(column)
                                           : std::size_t(column) * first.stride + std::size_t(row);
      unsigned char* in_memory = matrix + index * size;
      unsigned char* in_fragment = elements + std::size_t(place) * size;
      std::memcpy(kLoad ? in_fragment : in_memory, kLoad ? in_memory : in_fragment, size);
    }
  }
}

/// One lane's part in a product.
struct Product {
  float* d;
  const uint16_t *a, *b;
  const float* c;
};

template <DType kType>
void multiply(void* const* operands, uint32_t, Location) {
  const Layout of_a(FragmentUse::a), of_b(FragmentUse::b), of_c(FragmentUse::accumulator);
  uint16_t a[16][16], b[2][16][8];  // b, c and d in two halves of 8 columns, as tensor cores take them
  float d[2][16][8];
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const auto& mine = *static_cast<const Product*>(operands[lane]);
    for (int place = 0; place < kSlots; ++place) {
      a[of_a.row(lane, place)][of_a.column(lane, place)] = mine.a[place];
      const int n = of_b.column(lane, place);
      b[n / 8][of_b.row(lane, place)][n % 8] = mine.b[place];
      const int column = of_c.column(lane, place);
      d[column / 8][of_c.row(lane, place)][column % 8] = mine.c[place];
    }
  }
  for (int half = 0; half < 2; ++half) multiply_accumulate(kType, a, b[half], d[half]);
  for (int lane = 0; lane < kWarpLanes; ++lane)
    for (int place = 0; place < kSlots; ++place) {
      const int column = of_c.column(lane, place);
      static_cast<const Product*>(operands[lane])->d[place] =
          d[column / 8][of_c.row(lane, place)][column % 8];
    }
}

constexpr Collective kLoadMatrix{"load_matrix_sync", &move<true>, true};
constexpr Collective kStoreMatrix{"store_matrix_sync", &move<false>, true};
constexpr Collective kMmaF16{"mma_sync", &multiply<DType::f16>, true};
constexpr Collective kMmaBf16{"mma_sync", &multiply<DType::bf16>, true};

}  // namespace

void load_fragment(const FragmentInMemory& fragment, Location where) {
  FragmentInMemory mine = fragment;
  warp_collective(kLoadMatrix, kAllLanes, &mine, where);
}

void store_fragment(const FragmentInMemory& fragment, Location where) {
  FragmentInMemory mine = fragment;
  warp_collective(kStoreMatrix, kAllLanes, &mine, where);
}

void multiply_fragments(DType type, float* d, const void* a, const void* b, const float* c, Location where) {
  Product mine{d, static_cast<const uint16_t*>(a), static_cast<const uint16_t*>(b), c};
  warp_collective(type == DType::f16 ? kMmaF16 : kMmaBf16, kAllLanes, &mine, where);
}

}  // namespace flashbook::sim
