#include "common/features/pairs/pairs.h"

#include "common/attention/npy.h"
#include "common/features/helpers.h"
#include "common/features/pairs/pairs_c.h"

namespace flashbook::features {
namespace {

/// Returns a query's bytes, one per key.
const unsigned char* row_of(const Spec& spec, int batch, int head, int query) {
  const Dense& d = spec.visibility.dense;
  const int64_t row = (int64_t(batch) * d.heads + (d.heads == 1 ? 0 : head)) * spec.seqlen_q + query;
  return d.visible.data() + row * spec.seqlen_k;
}

/// Reads pairs, [seqlen, seqlen_k] or [batch, heads or 1, seqlen, seqlen_k], or FlashMask's intervals,
/// [batch, kv_heads or 1, seqlen_k, 1, 2 or 4].
void read_mask(const Value& file, Request& to) {
  Spec& spec = to.spec;
  NpyMask mask = read_npy_mask(file.text);
  const std::vector<int64_t>& dims = mask.shape;
  const auto refuse = [&](const std::string& wanted) {
    throw InputError("--mask ", file.text, " has shape ", dims_text(dims), ": it must be ", wanted);
  };
  if (mask.pairs.empty()) {
    const bool fits = dims.size() == 4 && dims[0] == spec.batch &&
                      (dims[1] == 1 || dims[1] == spec.kv_heads) && dims[2] == spec.seqlen_k &&
                      (dims[3] == 1 || dims[3] == 2 || dims[3] == 4);
    if (!fits)
      refuse("[" + std::to_string(spec.batch) + ", 1 or " + std::to_string(spec.kv_heads) + ", " +
             std::to_string(spec.seqlen_k) + ", 1, 2 or 4]");
    spec.visibility.columns = {int(dims[1]), int(dims[3]), std::move(mask.intervals)};
    return;
  }
  const std::size_t n = dims.size();
  const bool fits =
      (n == 2 || (n == 4 && dims[0] == spec.batch && (dims[1] == 1 || dims[1] == spec.heads))) &&
      dims[n - 2] == spec.seqlen_q && dims[n - 1] == spec.seqlen_k;
  if (!fits) {
    const std::string rows = std::to_string(spec.seqlen_q) + ", " + std::to_string(spec.seqlen_k) + "]";
    refuse("[" + rows + " or [" + std::to_string(spec.batch) + ", 1 or " + std::to_string(spec.heads) + ", " +
           rows);
  }
  Dense& dense = spec.visibility.dense;
  dense.heads = n == 2 ? 1 : int(dims[1]);
  for (int batch = 0; batch < (n == 2 ? spec.batch : 1); ++batch)
    dense.visible.insert(dense.visible.end(), mask.pairs.begin(), mask.pairs.end());
}

}  // namespace

constexpr Mask kPairs = {
    .hides = [](const Spec& spec, int batch, int head, int query,
                int key) { return row_of(spec, batch, head, query)[key] == 0; },
    .classify =
        [](const Spec& spec, int batch, int head, const ScoreTile& tile) {
          const int keys = std::min(tile.keys, spec.seqlen_k - tile.first_key);
          bool any = false, all = true;
          for (int query = tile.first_query; query < tile.first_query + tile.queries && (!any || all);
               ++query)
            for (const unsigned char pair :
                 std::span(row_of(spec, batch, head, query) + tile.first_key, std::size_t(keys)))
              any |= pair != 0, all &= pair != 0;
          return class_of(any, all);
        },
};

const Definition pairs = {
    .plural = "masks pair by pair",
    .is_in = [](const Spec& spec) { return !spec.visibility.dense.empty(); },
    .give =
        [](Spec& spec, std::mt19937& random) {
          Dense dense{.heads = one_in(random, 2) ? 1 : spec.heads};
          dense.visible.resize(std::size_t(spec.batch * dense.heads * spec.seqlen_q * spec.seqlen_k));
          // Most pairs are visible, so that tiles of all classes remain.
          for (unsigned char& pair : dense.visible) pair = !one_in(random, 20);
          spec.visibility.dense = std::move(dense);
        },
    .validate =
        [](const Spec& spec) {
          const Dense& d = spec.visibility.dense;
          require(d.heads == 1 || d.heads == spec.heads, "the mask is for ", d.heads, " heads: give 1 or ",
                  spec.heads);
          require_count("the mask", d.visible.size(),
                        int64_t(spec.batch) * d.heads * spec.seqlen_q * spec.seqlen_k,
                        "batch * heads * seqlen_q * seqlen_k");
        },
    .describe = [](const Spec&) { return std::string("a mask of pairs"); },
    .tables = [](const Spec& spec) -> Tables {
      return {table(TableId::dense, "dense", spec.visibility.dense.visible)};
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
    .in_c = c_struct<FlashbookPairs, FLASHBOOK_PAIRS>(
        [](const auto& from, Spec& to) {
          const double rows = double(to.batch) * from.heads * to.seqlen_q;
          to.visibility.dense = {from.heads, on_device<unsigned char>(rows * to.seqlen_k)};
        },
        {{"pairs", place_of(TableId::dense), 1}}),
};

}  // namespace flashbook::features
