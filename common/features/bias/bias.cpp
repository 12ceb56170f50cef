#include "common/features/bias/bias.h"

#include <cmath>
#include <limits>

#include "common/attention/npy.h"
#include "common/features/bias/bias_c.h"
#include "common/features/helpers.h"

namespace flashbook::features {
namespace {

template <typename Sum>
Changed<Sum> biased(const Spec& spec, const Pair& pair, Sum score) {
  return {score + spec.score.bias.at(pair.head, pair.distance)};
}

/// Reads a bias by distance, [heads, 2 * reach + 1].
void read_bias(const Value& file, Request& to) {
  NpyArray array = read_npy(file.text);
  const std::vector<int64_t>& dims = array.shape;
  if (dims.size() != 2 || dims[0] != to.spec.heads || dims[1] % 2 == 0 ||
      dims[1] > std::numeric_limits<int>::max())
    throw InputError("--bias ", file.text, " has shape ", dims_text(dims), ": it must be [", to.spec.heads,
                     ", an odd number]");
  to.spec.score.bias = {int(dims[1] / 2), std::move(array.values)};
}

}  // namespace

const Definition bias = {
    .plural = "biases by distance",
    .is_in = [](const Spec& spec) { return !spec.score.bias.values.empty(); },
    .give =
        [](Spec& spec, std::mt19937& random) {
          const int reach = between(random, 0, 5);
          spec.score.bias = {reach, std::vector<float>(std::size_t(spec.heads * (2 * reach + 1)))};
          for (float& value : spec.score.bias.values) value = float(between(random, -16, 16)) / 8;
        },
    .validate =
        [](const Spec& spec) {
          const RelativeBias& bias = spec.score.bias;
          const int64_t wanted = spec.heads * (2 * int64_t(bias.reach) + 1);
          require(bias.reach >= 0 && int64_t(bias.values.size()) == wanted, "the bias has ",
                  bias.values.size(), " values: give ", wanted, ", 2 * reach + 1 for each head");
          for (const float value : bias.values)
            require(std::isfinite(value), "a bias is not finite: give finite biases");
        },
    .describe = [](const Spec&) { return std::string("bias"); },
    .tables = [](const Spec& spec) -> Tables {
      return {table(TableId::bias, "bias", spec.score.bias.values)};
    },
    .options = {{.name = "--bias",
                 .type = "FILE",
                 .help =
                     "Bias to add to scores by distance, from a .npy file, [heads, 2 R + 1]: column R + d is "
                     "for a key d positions after a query's own; beyond R, the outermost column applies",
                 .read = read_bias}},
    .score = biased<double>,
    .score_in_float = biased<float>,
    .in_c = c_struct<FlashbookBias, FLASHBOOK_BIAS>(
        [](const auto& from, Spec& to) {
          require(from.reach >= 0, "reach is ", from.reach, ": give 0 or more");
          to.score.bias = {from.reach, on_device<float>(to.heads * (2.0 * from.reach + 1))};
        },
        {{"bias", place_of(TableId::bias)}}),
};

}  // namespace flashbook::features
