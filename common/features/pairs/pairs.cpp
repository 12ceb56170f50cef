#include "common/features/pairs/pairs.h"

#include "common/attention/npy.h"
#include "common/features/helpers.h"

namespace flashbook::features {
namespace {

/// Returns a query's bytes, one for each key.
const unsigned char* row_of(const Shape& shape, int batch, int head, int query) {
  const Dense& d = shape.visibility.dense;
  const int64_t row = (int64_t(batch) * d.heads + (d.heads == 1 ? 0 : head)) * shape.seqlen_q + query;
  return d.visible.data() + row * shape.seqlen_k;
}

/// Reads pairs, [seqlen, seqlen_k] or [batch, heads or 1, seqlen, seqlen_k], or FlashMask's intervals,
/// [batch, kv_heads or 1, seqlen_k, 1, 2 or 4].
void read_mask(const Value& file, Request& to) {
  Shape& shape = to.shape;
  NpyMask mask = read_npy_mask(file.text);
  const std::vector<int64_t>& dims = mask.shape;
  const auto refuse = [&](const std::string& wanted) {
    throw InputError("--mask ", file.text, " has shape ", dims_text(dims), ": it must be ", wanted);
  };
  if (mask.pairs.empty()) {
    const bool fits = dims.size() == 4 && dims[0] == shape.batch &&
                      (dims[1] == 1 || dims[1] == shape.kv_heads) && dims[2] == shape.seqlen_k &&
                      (dims[3] == 1 || dims[3] == 2 || dims[3] == 4);
    if (!fits)
      refuse("[" + std::to_string(shape.batch) + ", 1 or " + std::to_string(shape.kv_heads) + ", " +
             std::to_string(shape.seqlen_k) + ", 1, 2 or 4]");
    shape.visibility.columns = {int(dims[1]), int(dims[3]), std::move(mask.intervals)};
    return;
  }
  const std::size_t n = dims.size();
  const bool fits =
      (n == 2 || (n == 4 && dims[0] == shape.batch && (dims[1] == 1 || dims[1] == shape.heads))) &&
      dims[n - 2] == shape.seqlen_q && dims[n - 1] == shape.seqlen_k;
  if (!fits) {
    const std::string rows = std::to_string(shape.seqlen_q) + ", " + std::to_string(shape.seqlen_k) + "]";
    refuse("[" + rows + " or [" + std::to_string(shape.batch) + ", 1 or " + std::to_string(shape.heads) +
           ", " + rows);
  }
  Dense& dense = shape.visibility.dense;
  dense.heads = n == 2 ? 1 : int(dims[1]);
  for (int batch = 0; batch < (n == 2 ? shape.batch : 1); ++batch)
    dense.visible.insert(dense.visible.end(), mask.pairs.begin(), mask.pairs.end());
}

}  // namespace

constexpr Mask kPairs = {
    .hides = [](const Shape& shape, int batch, int head, int query,
                int key) { return row_of(shape, batch, head, query)[key] == 0; },
    .classify =
        [](const Shape& shape, int batch, int head, const ScoreTile& tile) {
          const int keys = std::min(tile.keys, shape.seqlen_k - tile.first_key);
          bool any = false, all = true;
          for (int query = tile.first_query; query < tile.first_query + tile.queries && (!any || all);
               ++query)
            for (const unsigned char pair :
                 std::span(row_of(shape, batch, head, query) + tile.first_key, std::size_t(keys)))
              any |= pair != 0, all &= pair != 0;
          return class_of(any, all);
        },
};

const Definition pairs = {
    .plural = "masks pair by pair",
    .is_in = [](const Shape& shape) { return !shape.visibility.dense.empty(); },
    .give =
        [](Shape& shape, std::mt19937& random) {
          Dense dense{.heads = one_in(random, 2) ? 1 : shape.heads};
          dense.visible.resize(std::size_t(shape.batch * dense.heads * shape.seqlen_q * shape.seqlen_k));
          // Mostly visible, so that tiles of all classes remain.
          for (unsigned char& pair : dense.visible) pair = !one_in(random, 20);
          shape.visibility.dense = std::move(dense);
        },
    .validate =
        [](const Shape& shape) {
          const Dense& d = shape.visibility.dense;
          require(d.heads == 1 || d.heads == shape.heads, "the mask is for ", d.heads, " heads: give 1 or ",
                  shape.heads);
          require_count("the mask", d.visible.size(),
                        int64_t(shape.batch) * d.heads * shape.seqlen_q * shape.seqlen_k,
                        "batch * heads * seqlen_q * seqlen_k");
        },
    .describe = [](const Shape&) { return std::string("a mask of pairs"); },
    .tables = [](const Shape& shape) -> Tables {
      return {table(TableId::dense, "dense", shape.visibility.dense.visible)};
    },
    .options = {{.name = "--mask",
                 .type = "FILE",
                 .help = "A mask from a .npy file: bool, which pairs are visible, [seqlen, seqlen_k]; or "
                         "FlashMask's int32 intervals, [batch, heads, seqlen_k, bounds]",
                 .read = read_mask,
                 .shown_by = Feature::intervals}},
    .mask = &kPairs,
    .by_head = true,
    .by_batch = true,
};

}  // namespace flashbook::features
