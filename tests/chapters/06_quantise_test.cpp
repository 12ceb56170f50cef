// The quantiser of chapter 6: its output, bit by bit, and the invariants of a rotation.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "chapters/06_fp8/host/quantise.h"
#include "common/attention/random.h"
#include "common/attention/tensors.h"
#include "common/numeric/float_formats.h"
#include "tests/require_gpu.h"
#include "tests/support/machine.h"

namespace flashbook::testing {
namespace {

constexpr uint64_t kSeed = 21;

struct Quantised {
  std::vector<float> values;   ///< the given values, rounded to their type
  std::vector<float> encoded;  ///< e4m3, decoded, without the scale
  std::vector<float> scales;
  std::vector<float> means;  ///< column means, if requested
};

/// Quantises `values`, rounded to tensor.dtype first. Memory past the rows is NaN and must stay untouched.
Quantised run(Quantisation tensor, std::vector<float> values, bool mean_subtracted = false) {
  tensor.strides = {.batch = int64_t(tensor.heads) * tensor.rows * tensor.head_dim,
                    .head = int64_t(tensor.rows) * tensor.head_dim,
                    .row = tensor.head_dim};
  constexpr std::size_t kBeyond = 4096;
  const auto beyond_is_poison = [](std::span<const std::byte> bytes, std::size_t from) {
    return std::ranges::all_of(bytes.subspan(from), [](std::byte b) { return b == std::byte(0xff); });
  };
  std::vector<std::byte> bytes = encode(tensor.dtype, values);
  const std::size_t elements = values.size(), scales = scales_of(tensor);
  bytes.resize(bytes.size() + kBeyond, std::byte(0xff));
  device::Buffer source(device::Place::device, bytes.size());
  device::Buffer encoded(device::Place::device, elements + kBeyond);
  device::Buffer scale(device::Place::device, scales * sizeof(float) + kBeyond);
  source.upload(bytes);
  tensor.values = source.data(), tensor.encoded = encoded.data();
  tensor.scales = static_cast<float*>(scale.data());
  const std::size_t columns = std::size_t(tensor.heads) * tensor.head_dim;
  device::Buffer means(device::Place::device, columns * sizeof(float) + kBeyond);
  device::Buffer workspace(device::Place::device, mean_workspace_bytes(columns) + kBeyond);
  if (mean_subtracted) tensor.means = static_cast<float*>(means.data()), tensor.workspace = workspace.data();
  quantise(tensor, nullptr);

  Quantised result{
      .values = std::move(values), .encoded = {}, .scales = std::vector<float>(scales), .means = {}};
  round_to(tensor.dtype, result.values);
  std::vector<std::byte> encoded_bytes(encoded.bytes()), scale_bytes(scale.bytes());
  encoded.download(encoded_bytes);
  scale.download(scale_bytes);
  EXPECT_TRUE(beyond_is_poison(encoded_bytes, elements));
  EXPECT_TRUE(beyond_is_poison(scale_bytes, scales * sizeof(float)));
  result.encoded = decode(DType::e4m3, std::span(encoded_bytes).first(elements));
  std::copy_n(reinterpret_cast<const float*>(scale_bytes.data()), scales, result.scales.begin());
  if (!mean_subtracted) return result;
  std::vector<std::byte> mean_bytes(means.bytes()), workspace_bytes(workspace.bytes());
  means.download(mean_bytes);
  workspace.download(workspace_bytes);
  EXPECT_TRUE(beyond_is_poison(mean_bytes, columns * sizeof(float)));
  EXPECT_TRUE(beyond_is_poison(workspace_bytes, mean_workspace_bytes(columns)));
  result.means.resize(columns);
  std::copy_n(reinterpret_cast<const float*>(mean_bytes.data()), columns, result.means.begin());
  return result;
}

/// Returns the index of a row's scale, counted over all heads.
int64_t scale_of(const Quantisation& tensor, int64_t row) {
  const int64_t head = row / tensor.rows;
  if (tensor.rows_of_scale == 0) return head / tensor.heads_of_scale;
  const int64_t tiles = ceil_div(tensor.rows, tensor.rows_of_scale);
  return head * tiles + row % tensor.rows / tensor.rows_of_scale;
}

std::vector<float> random_values(int64_t count, uint64_t seed) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i)  // sizes from 2^-8 to 2^7, so that all tiles have different maxima
    values[i] = float(int64_t(random_bits(seed, 2 * i)) * 0x1p-63) *
                std::exp2(float(random_bits(seed, 2 * i + 1) % 16) - 8);
  return values;
}

int64_t elements_of(const Quantisation& tensor) {
  return int64_t(tensor.heads) * tensor.rows * tensor.head_dim;
}

/// Returns a row times H diag(signs) / sqrt(d), from the definition.
std::vector<double> rotated(std::span<const float> row, uint64_t seed) {
  const int d = int(row.size());
  std::vector<double> result(d);
  for (int j = 0; j < d; ++j) {
    for (int i = 0; i < d; ++i) {
      const bool sign = random_bits(seed, i / 8) >> 56 >> (i % 8) & 1;
      result[j] += (sign != (std::popcount(unsigned(i & j)) % 2 == 1) ? -1.0 : 1.0) * row[i];
    }
    result[j] /= std::sqrt(double(d));
  }
  return result;
}

/// Returns the largest rounding error of e4m3 at `value`, before scaling: half a step, which is a 16th of the
/// power of two below, or half the smallest step near zero.
double half_step(double value) { return std::max(std::exp2(std::floor(std::log2(value))) / 16, 0x1p-10); }

/// Checks the values. Without a rotation every bit is known.
void expect_exact(const Quantisation& tensor, std::vector<float> values) {
  const Quantised result = run(tensor, std::move(values));
  std::vector<float> largest(result.scales.size(), 0.0f);
  for (int64_t i = 0; i < int64_t(result.values.size()); ++i) {
    float& of_scale = largest[scale_of(tensor, i / tensor.head_dim)];
    of_scale = std::max(of_scale, std::abs(result.values[i]));
  }
  for (std::size_t s = 0; s < largest.size(); ++s)
    ASSERT_EQ(result.scales[s], std::max(largest[s] / 448, 0x1p-100f)) << s;
  for (int64_t i = 0; i < int64_t(result.values.size()); ++i) {
    const float inverse = 1 / result.scales[scale_of(tensor, i / tensor.head_dim)];
    ASSERT_EQ(result.encoded[i], to_float(to_e4m3(result.values[i] * inverse)))
        << "row " << i / tensor.head_dim << ", column " << i % tensor.head_dim;
  }
}

/// Checks the values, which are known up to float32's rounding with a rotation.
void expect_rotated(const Quantisation& tensor, std::vector<float> values) {
  const Quantised result = run(tensor, std::move(values));
  const int d = tensor.head_dim;
  std::vector<double> exact(result.values.size()), largest(result.scales.size());
  for (int64_t row = 0; row < int64_t(exact.size()) / d; ++row) {
    const auto turned = rotated(std::span(result.values).subspan(row * d, d), *tensor.rotation);
    std::ranges::copy(turned, exact.begin() + row * d);
    for (double value : turned)
      largest[scale_of(tensor, row)] = std::max(largest[scale_of(tensor, row)], std::abs(value));
  }
  for (std::size_t s = 0; s < largest.size(); ++s)
    ASSERT_NEAR(result.scales[s] * 448, largest[s], 1e-5 * largest[s]) << s;
  for (int64_t i = 0; i < int64_t(exact.size()); ++i) {
    const double scale = result.scales[scale_of(tensor, i / d)], want = exact[i] / scale;
    ASSERT_NEAR(result.encoded[i], want, half_step(std::abs(want)) * (1 + 1e-3) + 448e-6)
        << "row " << i / d << ", column " << i % d;
  }
}

class Quantiser : public MachineTest {};

#ifdef FLASHBOOK_ONLY_HEAD_DIM  // like the traced kernels
constexpr DType kTypes[] = {DType::bf16};
constexpr int kHeadDims[] = {FLASHBOOK_ONLY_HEAD_DIM};
#else
constexpr DType kTypes[] = {DType::f16, DType::bf16};
constexpr int kHeadDims[] = {64, 128, 256};
#endif

/// Returns every version of the kernels: type, head_dim, rows or heads per scale. The simulator runs half of
/// them, which cover all pairs.
std::vector<Quantisation> every_version(int rows) {
  std::vector<Quantisation> all;
  const bool takes_half = device::machine() != device::Machine::gpu;
  int number = 0;
  for (DType dtype : kTypes)
    for (int head_dim : kHeadDims)
      for (const auto& [rows_of_scale, heads_of_scale] :
           {std::pair(64, 0), {128, 0}, {0, 1}, {0, 2}, {0, 4}}) {
        if (takes_half && number++ % 2 == 1) continue;
        all.push_back({.dtype = dtype,
                       .batch = 1,
                       .heads = 4,
                       .rows = rows,
                       .head_dim = head_dim,
                       .rows_of_scale = rows_of_scale,
                       .heads_of_scale = heads_of_scale,
                       .rotation = {},
                       .strides = {},
                       .values = nullptr,
                       .encoded = nullptr,
                       .scales = nullptr});
      }
  return all;
}

TEST_F(Quantiser, RoundsEveryElementByItsScale) {
  for (const Quantisation& tensor : every_version(150))
    expect_exact(tensor, random_values(elements_of(tensor), 1));
}

TEST_F(Quantiser, RotatesRowsBefore) {
  for (Quantisation tensor : every_version(70)) {
    tensor.rotation = kSeed;
    expect_rotated(tensor, random_values(elements_of(tensor), 2));
  }
}

// The last tile may have one row, or all, and a head may be shorter than a tile.
TEST_F(Quantiser, TakesAnyNumberOfRows) {
  for (int rows : {1, 63, 65, 128, 200})
    for (int rows_of_scale : {0, 64, 128}) {
      Quantisation tensor = every_version(rows).front();
      tensor.heads = 3, tensor.rows_of_scale = rows_of_scale, tensor.heads_of_scale = 3;
      expect_exact(tensor, random_values(elements_of(tensor), 3));
    }
}

// With the largest and the smallest values of a type, no scale is infinite or zero.
TEST_F(Quantiser, TakesValuesOfEverySize) {
  for (Quantisation tensor : every_version(65)) {
    for (float size : {tensor.dtype == DType::f16 ? 65504.0f : 0x1.fep+127f, 0x1p-24f,
                       tensor.dtype == DType::f16 ? 0x1p-14f : 0x1p-133f}) {
      std::vector<float> values = random_values(elements_of(tensor), 4);
      for (float& value : values) value *= size * 0x1p-8f;
      values[7] = -size;
      expect_exact(tensor, values);
    }
    // The simulator rotates one version per type and head dimension: the layout of scales does not affect
    // rotation.
    if (device::machine() != device::Machine::gpu && tensor.rows_of_scale != 64) continue;
    tensor.rotation = kSeed;  // 256 elements of 2^115 that agree in sign give 2^119
    for (float size : {tensor.dtype == DType::f16 ? 65504.0f : 0x1p+115f, 0x1p-14f}) {
      std::vector<float> values = random_values(elements_of(tensor), 5);
      for (float& value : values) value *= size * 0x1p-8f;
      expect_rotated(tensor, values);
    }
  }
}

/// Returns the index of an element's column, over all heads.
int64_t column_of(const Quantisation& tensor, int64_t i) {
  return i / tensor.head_dim / tensor.rows * tensor.head_dim + i % tensor.head_dim;
}

/// Checks the values. Without a rotation every bit is known except the last ones of the means.
void expect_mean_subtracted(const Quantisation& tensor, std::vector<float> values, double tolerance) {
  const Quantised result = run(tensor, std::move(values), true);
  std::vector<double> sums(result.means.size());
  std::vector<float> size(result.means.size()), largest(result.scales.size());
  const auto without_mean = [&](int64_t i) { return result.values[i] - result.means[column_of(tensor, i)]; };
  for (int64_t i = 0; i < int64_t(result.values.size()); ++i) {
    float &of_column = size[column_of(tensor, i)], &of_scale = largest[scale_of(tensor, i / tensor.head_dim)];
    sums[column_of(tensor, i)] += result.values[i];
    of_column = std::max(of_column, std::abs(result.values[i]));
    of_scale = std::max(of_scale, std::abs(without_mean(i)));
  }
  for (std::size_t c = 0; c < sums.size(); ++c)
    ASSERT_NEAR(result.means[c], sums[c] / tensor.rows, tolerance * size[c]) << c;
  for (std::size_t s = 0; s < largest.size(); ++s)
    ASSERT_EQ(result.scales[s], std::max(largest[s] / 448, 0x1p-100f)) << s;
  for (int64_t i = 0; i < int64_t(result.values.size()); ++i) {
    const float inverse = 1 / result.scales[scale_of(tensor, i / tensor.head_dim)];
    ASSERT_EQ(result.encoded[i], to_float(to_e4m3(without_mean(i) * inverse)))
        << "row " << i / tensor.head_dim << ", column " << i % tensor.head_dim;
  }
}

/// Returns columns of values N(0, 1) with means of both signs.
std::vector<float> values_with_means(const Quantisation& tensor, uint64_t seed) {
  std::vector<float> values = random_values(elements_of(tensor), seed);
  for (int64_t i = 0; i < int64_t(values.size()); ++i) values[i] += float(column_of(tensor, i) % 9) * 8 - 32;
  return values;
}

TEST_F(Quantiser, TakesMeansFromColumns) {
  for (int rows : {1, 65, 150})
    for (const Quantisation& tensor : every_version(rows))
      expect_mean_subtracted(tensor, values_with_means(tensor, 9), 1e-5);
}

// Values too large for the integer sums get another mean, between the smallest and the largest element, so
// that nothing overflows. Values smaller than the integers' unit get none.
TEST_F(Quantiser, TakesMeansOfEverySize) {
  for (Quantisation tensor : every_version(65))
    for (float size : {tensor.dtype == DType::f16 ? 2000.0f : 0x1p+120f, 0x1p-15f}) {
      std::vector<float> values = random_values(elements_of(tensor), 4);
      for (float& value : values) value = (std::abs(value) * 0x1p-8f + 0.5f) * size;
      expect_mean_subtracted(tensor, values, 1);
    }
}

TEST_F(Quantiser, AnyOrderOfWarpsGivesTheSame) {
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    const RandomWarpOrder order(seed);
    for (int rows_of_scale : {0, 64, 128}) {
      Quantisation tensor = every_version(150).front();
      tensor.rows_of_scale = rows_of_scale, tensor.heads_of_scale = 2;
      expect_exact(tensor, random_values(elements_of(tensor), 8));
      expect_mean_subtracted(tensor, values_with_means(tensor, 8), 1e-5);
    }
  }
}

}  // namespace
}  // namespace flashbook::testing
