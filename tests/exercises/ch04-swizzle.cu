#include <set>

#include "chapters/04_flash_attention_2/exercises/narrow_swizzle.h"
#include "common/ptx/ldmatrix.h"
#include "tests/exercises/exercise.h"
#include "tests/support/waste.h"

namespace flashbook::testing {
namespace {

constexpr int kRows = 32, kColumns = 32;  // size of a tile; a row takes 64 bytes

/// Stores a tile row by row, swizzled, and reads it back with ldmatrix: out[r][c] = in[r][c].
__global__ void there_and_back(const __half* in, __half* out) {
  unsigned char* tile = dynamic_shared<unsigned char>();
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < kRows; i += 8) {
    const int row = i + lane / 4, piece = lane % 4;
    *reinterpret_cast<uint4*>(tile + fa2::narrow_swizzled(row, piece)) =
        reinterpret_cast<const uint4*>(in + row * kColumns)[piece];
  }
  __syncwarp();
  for (int row = 0; row < kRows; row += 16)
    for (int step = 0; step < 2; ++step) {  // 16 rows by 16 columns, as the left operand of a product
      uint32_t a[4];
      ldmatrix_x4(a, tile + fa2::narrow_swizzled(row + lane % 16, 2 * step + lane / 16));
      for (int i = 0; i < 4; ++i)
        *reinterpret_cast<uint32_t*>(out + (row + lane / 4 + i % 2 * 8) * kColumns + step * 16 +
                                     lane % 4 * 2 + i / 2 * 8) = a[i];
    }
}

class Swizzle : public MachineTest {};

TEST(Swizzled, EveryPieceHasItsOwnPlaceInTheTile) {
  std::set<int> places;
  for (int row = 0; row < kRows; ++row)
    for (int piece = 0; piece < 4; ++piece) {
      const int place = observed(fa2::narrow_swizzled(row, piece));
      if (place % 16 != 0 || place < 0 || place >= kRows * 64)
        FAIL() << "piece " << piece << " of row " << row << " lies at " << place;
      if (!places.insert(place).second)
        FAIL() << "piece " << piece << " of row " << row << " is stored over another piece, at " << place;
    }
}

TEST(Swizzled, APieceOfEightRowsTouchesEveryBankOnce) {
  for (int first = 0; first < kRows; first += 8)
    for (int piece = 0; piece < 4; ++piece) {
      std::set<int> banks;
      for (int row = first; row < first + 8; ++row)
        banks.insert(observed(fa2::narrow_swizzled(row, piece)) / 16 % 8);  // groups of four banks
      if (banks.size() < 8)
        FAIL() << "piece " << piece << " of rows " << first << " to " << first + 7 << " touches "
               << banks.size() << " of the 8 groups of four banks";
    }
}

TEST_F(Swizzle, ATileThatIsReadBackTakesNoTurnTooMany) {
  const std::vector<float> numbers = rounded(DType::f16, random_numbers(kRows * kColumns, 1));
  const DeviceArray in(DType::f16, numbers), out(DType::f16, numbers.size());
  bank_conflicts();  // discard earlier counts
  run(there_and_back, dim3(1), dim3(32), kRows * 64, in.as<__half>(), out.as<__half>());
  if (out.download() != numbers) ADD_FAILURE() << "the tile read back differs from the one stored";
  const std::string waste = observed(bank_conflicts());
  if (!waste.empty()) ADD_FAILURE() << waste;
}

}  // namespace
}  // namespace flashbook::testing
