/// \file
/// Collective operations of a warp's lanes: shuffles, votes, __syncwarp.
#pragma once
#include <bit>
#include <cstdint>

#include "common/simulator/location.h"

namespace flashbook::sim {

/// A collective operation of a warp's lanes. Each lane passes a pointer to its operand; the last lane to
/// arrive computes for all of them. Two calls belong together if they name the same object.
struct Collective {
  const char* name;  ///< the call's name in reports
  /// Computes for the lanes in `lanes`; `operands[lane]` is a lane's operand, and `where` is the call site of
  /// the first lane to arrive.
  void (*combine)(void* const* operands, uint32_t lanes, Location where);
  /// Whether the instruction is .aligned in PTX: all 32 lanes must execute the same instruction, so no lane
  /// may have exited and all of them must call it from the same place in the source.
  bool aligned = false;
};

/// The mask of a whole warp.
constexpr uint32_t kAllLanes = 0xffffffff;

/// Waits until every lane in `mask` that has not exited takes part in `collective` with the same mask.
void warp_collective(const Collective& collective, uint32_t mask, void* operand, Location where);

/// Returns the number of the calling thread's lane.
int lane();

/// Throws an Error: `reader` shuffles from lane `source`, which does not participate.
[[noreturn]] void shuffle_reads_absent_lane(const Collective& collective, Location where, int reader,
                                            int source);

/// Throws an Error: `width` is not a power of two up to 32.
[[noreturn]] void wrong_shuffle_width(const Collective& collective, int width, Location where);

/// A lane's operand in a shuffle.
template <typename T>
struct ShuffleOperand {
  T value;              ///< input: the lane's own value
  int argument, width;  ///< input: these select the lane to read
  T result;             ///< output
};

/// The kinds of shuffle, which interpret the lane argument differently.
enum class Shuffle { idx, up, down, xor_ };

template <typename T, Shuffle kShuffle>
void shuffle(void* const* operands, uint32_t lanes, Location where);

/// The four shuffles of T.
template <typename T, Shuffle kShuffle>
inline constexpr Collective kShuffleOf{kShuffle == Shuffle::idx    ? "__shfl_sync"
                                       : kShuffle == Shuffle::up   ? "__shfl_up_sync"
                                       : kShuffle == Shuffle::down ? "__shfl_down_sync"
                                                                   : "__shfl_xor_sync",
                                       &shuffle<T, kShuffle>};

/// Returns the lane that a shuffle reads (PTX ISA, shfl.sync). If the source is outside the caller's segment
/// of `width` lanes, that is the caller itself; only xor may read from an earlier segment.
template <Shuffle kShuffle>
FLASHBOOK_UNTRACED int shuffle_source(int lane, int argument, int width) {
  const int first = lane & ~(width - 1);
  const int last = first + width - 1;
  if constexpr (kShuffle == Shuffle::idx) return first | (argument & (width - 1));
  if constexpr (kShuffle == Shuffle::up)
    return lane - (argument & 31) < first ? lane : lane - (argument & 31);
  if constexpr (kShuffle == Shuffle::down)
    return lane + (argument & 31) > last ? lane : lane + (argument & 31);
  if constexpr (kShuffle == Shuffle::xor_)
    return (lane ^ (argument & 31)) > last ? lane : lane ^ (argument & 31);
}

template <typename T, Shuffle kShuffle>
FLASHBOOK_UNTRACED void shuffle(void* const* operands, uint32_t lanes, Location where) {
  for (uint32_t left = lanes; left; left &= left - 1) {
    const int reader = __builtin_ctz(left);
    auto* operand = static_cast<ShuffleOperand<T>*>(operands[reader]);
    const int source = shuffle_source<kShuffle>(reader, operand->argument, operand->width);
    if (!(lanes >> source & 1)) shuffle_reads_absent_lane(kShuffleOf<T, kShuffle>, where, reader, source);
    operand->result = static_cast<ShuffleOperand<T>*>(operands[source])->value;
  }
}

template <Shuffle kShuffle, typename T>
FLASHBOOK_UNTRACED T shuffled(uint32_t mask, T value, int argument, int width, Location where) {
  if (width < 1 || width > 32 || (width & (width - 1)) != 0)
    wrong_shuffle_width(kShuffleOf<T, kShuffle>, width, where);
  ShuffleOperand<T> operand{value, argument, width, value};
  warp_collective(kShuffleOf<T, kShuffle>, mask, &operand, where);
  return operand.result;
}

/// The kinds of reduction. A lane's operand holds first its value, then the result.
enum class Reduction { add, min, max, and_, or_, xor_ };

template <typename T, Reduction kReduction>
FLASHBOOK_UNTRACED void reduce(void* const* operands, uint32_t lanes, Location) {
  const auto combined = [](T a, T b) {
    if constexpr (kReduction == Reduction::add) return T(unsigned(a) + unsigned(b));
    if constexpr (kReduction == Reduction::min) return b < a ? b : a;
    if constexpr (kReduction == Reduction::max) return a < b ? b : a;
    if constexpr (kReduction == Reduction::and_) return T(a & b);
    if constexpr (kReduction == Reduction::or_) return T(a | b);
    if constexpr (kReduction == Reduction::xor_) return T(a ^ b);
  };
  T result = *static_cast<T*>(operands[__builtin_ctz(lanes)]);
  for (uint32_t left = lanes & (lanes - 1); left; left &= left - 1)
    result = combined(result, *static_cast<T*>(operands[__builtin_ctz(left)]));
  for (uint32_t left = lanes; left; left &= left - 1)
    *static_cast<T*>(operands[__builtin_ctz(left)]) = result;
}

/// The reductions of T, which is int or unsigned.
template <typename T, Reduction kReduction>
inline constexpr Collective kReductionOf{kReduction == Reduction::add    ? "__reduce_add_sync"
                                         : kReduction == Reduction::min  ? "__reduce_min_sync"
                                         : kReduction == Reduction::max  ? "__reduce_max_sync"
                                         : kReduction == Reduction::and_ ? "__reduce_and_sync"
                                         : kReduction == Reduction::or_  ? "__reduce_or_sync"
                                                                         : "__reduce_xor_sync",
                                         &reduce<T, kReduction>};

template <Reduction kReduction, typename T>
FLASHBOOK_UNTRACED T reduced(uint32_t mask, T value, Location where) {
  warp_collective(kReductionOf<T, kReduction>, mask, &value, where);
  return value;
}

/// Returns the lanes in `mask` that have the same bits as the caller. `which` is kMatchAny or kMatchAll.
uint32_t match(const Collective& which, uint32_t mask, uint64_t bits, Location where);
extern const Collective kMatchAny, kMatchAll;

template <typename T>
uint64_t bits_of(T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "numbers of 4 or 8 bytes are compared");
  if constexpr (sizeof(T) == 4) return std::bit_cast<uint32_t>(value);
  if constexpr (sizeof(T) == 8) return std::bit_cast<uint64_t>(value);
}

/// Returns the lanes that execute the call together with the caller. These need not be all lanes on the same
/// path: in random mode they may be a subset.
uint32_t active_lanes(Location where);

/// Returns the lanes in `mask` whose predicate is true. `which` is kBallot, kAny or kAll.
uint32_t vote(const Collective& which, uint32_t mask, bool predicate, Location where);
extern const Collective kBallot, kAny, kAll, kElect, kSyncWarp;

/// Returns whether the caller is the lane elected from `mask`.
bool elect_one(uint32_t mask, Location where);

}  // namespace flashbook::sim

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::shuffled<flashbook::sim::Shuffle::idx>(mask, value, source, width, where);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::shuffled<flashbook::sim::Shuffle::up>(mask, value, int(delta), width, where);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::shuffled<flashbook::sim::Shuffle::down>(mask, value, int(delta), width, where);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::shuffled<flashbook::sim::Shuffle::xor_>(mask, value, lane_mask, width, where);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::vote(flashbook::sim::kBallot, mask, predicate != 0, where);
}
inline int __any_sync(unsigned mask, int predicate,
                      flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::vote(flashbook::sim::kAny, mask, predicate != 0, where) != 0;
}
inline int __all_sync(unsigned mask, int predicate,
                      flashbook::sim::Location where = flashbook::sim::Location::current()) {
  // Counts the false predicates, so that a lane that has exited does not count as false.
  return flashbook::sim::vote(flashbook::sim::kAll, mask, predicate == 0, where) == 0;
}
inline unsigned __activemask(flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::active_lanes(where);
}

template <typename T>
unsigned __match_any_sync(unsigned mask, T value,
                          flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::match(flashbook::sim::kMatchAny, mask, flashbook::sim::bits_of(value), where);
}
/// Returns the mask if all lanes have the same value, and 0 otherwise.
template <typename T>
unsigned __match_all_sync(unsigned mask, T value, int* all_equal,
                          flashbook::sim::Location where = flashbook::sim::Location::current()) {
  const unsigned equal =
      flashbook::sim::match(flashbook::sim::kMatchAll, mask, flashbook::sim::bits_of(value), where);
  *all_equal = equal != 0;
  return equal;
}

inline int __reduce_add_sync(unsigned mask, int value,
                             flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::reduced<flashbook::sim::Reduction::add>(mask, value, where);
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned value,
                                  flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::reduced<flashbook::sim::Reduction::add>(mask, value, where);
}
inline int __reduce_min_sync(unsigned mask, int value,
                             flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::reduced<flashbook::sim::Reduction::min>(mask, value, where);
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value,
                                  flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::reduced<flashbook::sim::Reduction::min>(mask, value, where);
}
inline int __reduce_max_sync(unsigned mask, int value,
                             flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::reduced<flashbook::sim::Reduction::max>(mask, value, where);
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value,
                                  flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::reduced<flashbook::sim::Reduction::max>(mask, value, where);
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value,
                                  flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::reduced<flashbook::sim::Reduction::and_>(mask, value, where);
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value,
                                 flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::reduced<flashbook::sim::Reduction::or_>(mask, value, where);
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value,
                                  flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::reduced<flashbook::sim::Reduction::xor_>(mask, value, where);
}

inline void __syncwarp(unsigned mask = 0xffffffff,
                       flashbook::sim::Location where = flashbook::sim::Location::current()) {
  flashbook::sim::warp_collective(flashbook::sim::kSyncWarp, mask, nullptr, where);
}
