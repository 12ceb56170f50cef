#include "common/simulator/wmma.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "common/simulator/block/addresses.h"
#include "common/simulator/block/worker.h"
#include "common/simulator/describe.h"
#include "common/simulator/launch.h"
#include "common/simulator/tensor_core.h"

namespace flashbook::sim {
namespace {

constexpr int kSide = 16;
constexpr int kElements = kSide * kSide;
constexpr int kSlots = kElements / kWarpLanes;  ///< number of different elements per lane

/// Maps a position in a fragment to an element of the matrix.
class Layout {
 public:
  /// The layout differs for every seed and use: slots are multiplied by an odd number and shifted by an
  /// offset, so that each number from 0 to 255 appears once.
  explicit Layout(FragmentUse use) {
    Random random(options().seed * 3 + uint64_t(use));
    multiple_ = unsigned(2 * random.below(kElements / 2) + 1);
    offset_ = unsigned(random.below(kElements));
  }
  /// Returns an element of the row-major matrix.
  uint8_t element(unsigned lane, unsigned place) const {
    return uint8_t((lane * kSlots + place % kSlots) * multiple_ + offset_);
  }

 private:
  unsigned multiple_, offset_;
};
static_assert(kElements == 256, "a byte numbers the elements, and wraps around as they do");

/// It is unspecified which lane accesses which bytes. Reports to the observer as if each lane moved 16 bytes,
/// 16 lines at a time.
void tell_observer(Access access, const char* what, const unsigned char* matrix, const FragmentInMemory& of,
                   Location where) {
  const Worker& worker = running_worker(what, where);
  Observer* observer = worker.observer();
  if (!observer) return;
  constexpr std::size_t kPiece = 16;
  const std::size_t line_bytes = kSide * std::size_t(of.element_bytes);
  const std::size_t stride = std::size_t(of.stride) * std::size_t(of.element_bytes);
  for (std::size_t at = 0; at < line_bytes; at += 2 * kPiece) {
    std::array<const unsigned char*, kWarpLanes> of_lane;
    for (std::size_t lane = 0; lane < of_lane.size(); ++lane)
      of_lane[lane] = matrix + lane % kSide * stride + at + lane / kSide * kPiece;
    observer->touches_together(worker.scheduler.current().warp, {access, matrix, kPiece, what, where},
                               of_lane);
  }
}

/// Moves elements between fragments and a matrix of `lines`, each of which has 16 contiguous elements.
template <bool kLoad, typename T>
void move_elements(void* const* operands, const FragmentInMemory& of, T (&lines)[kSide][kSide]) {
  const Layout layout(of.use);
  T* const in_order = lines[0];
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    auto* fragment = static_cast<T*>(static_cast<const FragmentInMemory*>(operands[lane])->elements);
    for (unsigned place = 0; place < kSlots; ++place) {
      const uint8_t element = layout.element(lane, place);
      T& in_lines = in_order[of.rows ? element : uint8_t(element << 4 | element >> 4)];
      (kLoad ? fragment[place] : in_lines) = kLoad ? in_lines : fragment[place];
    }
    // Every element of an operand is stored twice.
    if (kLoad && of.use != FragmentUse::accumulator) std::copy_n(fragment, kSlots, fragment + kSlots);
  }
}

/// Moves the elements of all lanes between fragments and memory.
template <bool kLoad, typename T>
void move_matrix(void* const* operands, const FragmentInMemory& of) {
  T lines[kSide][kSide];
  const auto line_in_memory = [&](int line) {
    return static_cast<T*>(of.matrix) + std::size_t(line) * of.stride;
  };
  if (kLoad)
    for (int line = 0; line < kSide; ++line)
      std::memcpy(lines[line], line_in_memory(line), sizeof lines[line]);
  move_elements<kLoad>(operands, of, lines);
  if (!kLoad)
    for (int line = 0; line < kSide; ++line)
      std::memcpy(line_in_memory(line), lines[line], sizeof lines[line]);
}

template <bool kLoad>
void move(void* const* operands, uint32_t, Location where) {
  const auto& first = *static_cast<const FragmentInMemory*>(operands[0]);
  const char* what = kLoad ? "load_matrix_sync" : "store_matrix_sync";
  const auto size = std::size_t(first.element_bytes);
  // The rule is in the CUDA programming guide, "Warp Matrix Functions".
  if (first.stride * size % 16 != 0)
    throw Error(describe_call(what, where) + " has a stride of " + std::to_string(first.stride) +
                " elements: it must be a multiple of 16 bytes");
  for (int lane = 1; lane < kWarpLanes; ++lane) {
    const auto& other = *static_cast<const FragmentInMemory*>(operands[lane]);
    if (other.matrix != first.matrix || other.stride != first.stride || other.rows != first.rows)
      throw Error(describe_call(what, where) + ": lane " + std::to_string(lane) +
                  " passes a different matrix, stride or layout than lane 0");
  }
  auto* matrix = static_cast<unsigned char*>(first.matrix);
  constexpr std::size_t kAlignment = 32;
  const std::size_t stride = std::size_t(first.stride) * size, line_bytes = kSide * size;
  require_shared_or_global(what, matrix, line_bytes, kAlignment, where);
  if (!running_worker(what, where).memory.contains(matrix, (kSide - 1) * stride + line_bytes))
    for (std::size_t line = 1; line < kSide; ++line)
      require_shared_or_global(what, matrix + line * stride, line_bytes, 1, where);

  tell_observer(kLoad ? Access::load : Access::store, what, matrix, first, where);
  if (size == sizeof(float))
    move_matrix<kLoad, float>(operands, first);
  else
    move_matrix<kLoad, uint16_t>(operands, first);
}

/// A lane's operands in a product.
struct Product {
  float* d;
  const uint16_t *a, *b;
  const float* c;
};

template <DType kType>
void multiply(void* const* operands, uint32_t, Location) {
  const Layout of_a(FragmentUse::a), of_b(FragmentUse::b), of_c(FragmentUse::accumulator);
  uint16_t matrix_of_a[kSide][kSide], b[kElements];
  uint16_t* const a = matrix_of_a[0];
  float c[kElements];
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    const auto& mine = *static_cast<const Product*>(operands[lane]);
    for (unsigned place = 0; place < kSlots; ++place) {
      a[of_a.element(lane, place)] = mine.a[place];
      b[of_b.element(lane, place)] = mine.b[place];
      c[of_c.element(lane, place)] = mine.c[place];
    }
  }
  for (int half = 0; half < 2; ++half) {  // computes 8 columns at a time, like a tensor core instruction
    uint16_t half_of_b[kSide][8];
    float d[kSide][8];
    for (int row = 0; row < kSide; ++row) {
      std::memcpy(half_of_b[row], &b[row * kSide + half * 8], sizeof half_of_b[row]);
      std::memcpy(d[row], &c[row * kSide + half * 8], sizeof d[row]);
    }
    multiply_accumulate(kType, matrix_of_a, half_of_b, d);
    for (int row = 0; row < kSide; ++row) std::memcpy(&c[row * kSide + half * 8], d[row], sizeof d[row]);
  }
  for (unsigned lane = 0; lane < kWarpLanes; ++lane)
    for (unsigned place = 0; place < kSlots; ++place)
      static_cast<const Product*>(operands[lane])->d[place] = c[of_c.element(lane, place)];
}

constexpr Collective kLoadMatrix{"load_matrix_sync", &move<true>, true};
constexpr Collective kStoreMatrix{"store_matrix_sync", &move<false>, true};
constexpr Collective kMmaF16{"mma_sync", &multiply<DType::f16>, true};
constexpr Collective kMmaBf16{"mma_sync", &multiply<DType::bf16>, true};

}  // namespace

void load_fragment(FragmentInMemory&& fragment, Location where) {
  warp_collective(kLoadMatrix, kAllLanes, &fragment, where);
}

void store_fragment(FragmentInMemory&& fragment, Location where) {
  warp_collective(kStoreMatrix, kAllLanes, &fragment, where);
}

void multiply_fragments(DType type, float* d, const void* a, const void* b, const float* c, Location where) {
  Product mine{d, static_cast<const uint16_t*>(a), static_cast<const uint16_t*>(b), c};
  warp_collective(type == DType::f16 ? kMmaF16 : kMmaBf16, kAllLanes, &mine, where);
}

}  // namespace flashbook::sim
