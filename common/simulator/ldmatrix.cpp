#include "common/simulator/ldmatrix.h"

#include <cstring>

#include "common/simulator/block/addresses.h"
#include "common/simulator/block/worker.h"
#include "common/simulator/launch.h"

namespace flashbook::sim {
namespace {

constexpr int kRows = 8;
constexpr std::size_t kRowBytes = 16;

/// One lane's part.
struct Operand {
  unsigned char* row;
  uint16_t (*halves)[2];  ///< for each matrix, the two elements that the lane's register holds
  int count;
  bool transposed;
};

/// Moves every element between its place in memory and its place in a register. Lane l holds the elements
/// 2 * (l % 4) and 2 * (l % 4) + 1 of row l / 4, or of column l / 4 if transposed.
template <bool kLoad>
void move(void* const* operands, uint32_t, Location) {
  const auto of_lane = [&](int lane) { return static_cast<const Operand*>(operands[lane]); };
  const int count = of_lane(0)->count;
  const bool transposed = of_lane(0)->transposed;
  for (int matrix = 0; matrix < count; ++matrix) {
    for (int lane = 0; lane < 32; ++lane) {
      uint16_t* halves = of_lane(lane)->halves[matrix];
      for (int half = 0; half < 2; ++half) {
        const int line = lane / 4, place = lane % 4 * 2 + half;
        const int row = transposed ? place : line, column = transposed ? line : place;
        unsigned char* element = of_lane(matrix * kRows + row)->row + column * sizeof(uint16_t);
        if (kLoad)
          std::memcpy(&halves[half], element, sizeof(uint16_t));
        else
          std::memcpy(element, &halves[half], sizeof(uint16_t));
      }
    }
  }
}

/// An instruction for each number of matrices and for transposed ones: lanes that disagree are divergent.
constexpr Collective kLoad[2][5] = {{{},
                                     {"ldmatrix_x1", &move<true>, true},
                                     {"ldmatrix_x2", &move<true>, true},
                                     {},
                                     {"ldmatrix_x4", &move<true>, true}},
                                    {{},
                                     {"ldmatrix_x1_trans", &move<true>, true},
                                     {"ldmatrix_x2_trans", &move<true>, true},
                                     {},
                                     {"ldmatrix_x4_trans", &move<true>, true}}};
constexpr Collective kStore[2][5] = {{{},
                                      {"stmatrix_x1", &move<false>, true},
                                      {"stmatrix_x2", &move<false>, true},
                                      {},
                                      {"stmatrix_x4", &move<false>, true}},
                                     {{},
                                      {"stmatrix_x1_trans", &move<false>, true},
                                      {"stmatrix_x2_trans", &move<false>, true},
                                      {},
                                      {"stmatrix_x4_trans", &move<false>, true}}};

void take_part(const Collective& instruction, Access access, const Operand& operand, Location where) {
  if (lane() < kRows * operand.count) {
    require_shared(instruction.name, operand.row, kRowBytes, kRowBytes, where);
    const Worker& worker = running_worker(instruction.name, where);
    if (Observer* observer = worker.observer())
      observer->touches(worker.current_number(), {access, operand.row, kRowBytes, instruction.name, where});
  }
  Operand mine = operand;
  warp_collective(instruction, kAllLanes, &mine, where);
}

}  // namespace

void ldmatrix(uint32_t* registers, int count, bool transposed, const void* row, Location where) {
  uint16_t halves[4][2];
  take_part(kLoad[transposed][count], Access::load,
            {const_cast<unsigned char*>(static_cast<const unsigned char*>(row)), halves, count, transposed},
            where);
  for (int i = 0; i < count; ++i) registers[i] = halves[i][0] | uint32_t(halves[i][1]) << 16;
}

void stmatrix(void* row, const uint32_t* registers, int count, bool transposed, Location where) {
  uint16_t halves[4][2];
  for (int i = 0; i < count; ++i) {
    halves[i][0] = uint16_t(registers[i]);
    halves[i][1] = uint16_t(registers[i] >> 16);
  }
  take_part(kStore[transposed][count], Access::store,
            {static_cast<unsigned char*>(row), halves, count, transposed}, where);
}

}  // namespace flashbook::sim
