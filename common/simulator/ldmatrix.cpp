#include "common/simulator/ldmatrix.h"

#include <cstring>

#include "common/simulator/block/addresses.h"
#include "common/simulator/block/worker.h"
#include "common/simulator/launch.h"

namespace flashbook::sim {
namespace {

constexpr int kRows = 8, kMatrices = 4;
constexpr std::size_t kRowBytes = 16;

/// One lane's operand.
struct Operand {
  unsigned char* row;
  uint16_t (*halves)[2];  ///< for each matrix, the two elements in the lane's register
  bool transposed;
};

/// Moves every element between memory and a register. Lane l holds elements 2 * (l % 4) and 2 * (l % 4) + 1
/// of row l / 4, or of column l / 4 if transposed.
template <bool kLoad>
void move(void* const* operands, uint32_t, Location) {
  const auto operand = [&](int lane) { return static_cast<const Operand*>(operands[lane]); };
  const bool transposed = operand(0)->transposed;
  for (int matrix = 0; matrix < kMatrices; ++matrix) {
    for (int lane = 0; lane < 32; ++lane) {
      uint16_t* halves = operand(lane)->halves[matrix];
      for (int half = 0; half < 2; ++half) {
        const int line = lane / 4, place = lane % 4 * 2 + half;
        const int row = transposed ? place : line, column = transposed ? line : place;
        unsigned char* element = operand(matrix * kRows + row)->row + column * sizeof(uint16_t);
        if (kLoad)
          std::memcpy(&halves[half], element, sizeof(uint16_t));
        else
          std::memcpy(element, &halves[half], sizeof(uint16_t));
      }
    }
  }
}

/// Plain and transposed collectives differ, so lanes that disagree are reported as divergent.
constexpr Collective kLoad[] = {{"ldmatrix_x4", &move<true>, true}, {"ldmatrix_x4_trans", &move<true>, true}};
constexpr Collective kStore[] = {{"stmatrix_x4", &move<false>, true},
                                 {"stmatrix_x4_trans", &move<false>, true}};

void take_part(const Collective& instruction, Access access, const Operand& operand, Location where) {
  require_shared(instruction.name, operand.row, kRowBytes, kRowBytes, where);
  const Worker& worker = running_worker(instruction.name, where);
  if (Observer* observer = worker.observer())
    observer->touches(worker.current_number(), {access, operand.row, kRowBytes, instruction.name, where});
  Operand mine = operand;
  warp_collective(instruction, kAllLanes, &mine, where);
}

}  // namespace

void ldmatrix(uint32_t (&registers)[4], bool transposed, const void* row, Location where) {
  uint16_t halves[kMatrices][2];
  take_part(kLoad[transposed], Access::load,
            {const_cast<unsigned char*>(static_cast<const unsigned char*>(row)), halves, transposed}, where);
  for (int i = 0; i < kMatrices; ++i) registers[i] = halves[i][0] | uint32_t(halves[i][1]) << 16;
}

void stmatrix(void* row, const uint32_t (&registers)[4], bool transposed, Location where) {
  uint16_t halves[kMatrices][2];
  for (int i = 0; i < kMatrices; ++i) {
    halves[i][0] = uint16_t(registers[i]);
    halves[i][1] = uint16_t(registers[i] >> 16);
  }
  take_part(kStore[transposed], Access::store, {static_cast<unsigned char*>(row), halves, transposed}, where);
}

}  // namespace flashbook::sim
