// Compares chapter 9's classes of tiles and visible pairs with the definition of the mask, for random masks.
#include <gtest/gtest.h>

#include "chapters/09_masks/host/backward_launch.cuh"
#include "chapters/09_masks/host/launch.cuh"
#include "chapters/09_masks/step1_dense.cuh"
#include "chapters/09_masks/step2_varlen.cuh"
#include "chapters/09_masks/step4_flashmask.cuh"
#include "chapters/09_masks/step5_mask_functions.cuh"
#include "tests/require_gpu.h"
#include "tests/support/masks.h"

namespace flashbook::testing {
namespace {

using namespace masks;
using masks::Problem, masks::problem_of;

constexpr int kRows = 5, kKeys = 4;

// Numbers of random masks, fewer of those that read memory and so take longer.
constexpr int kByRanges = 1500, kByColumns = 500, kByFunctions = 150;

// A policy declares its features in one struct. A misspelt name does not compile; an extra without its
// function and a function without its extra are refused.
template <typename Named>
concept TakesMisspelt = requires(Named named) {
  named = Named{.hidden_by_kye = true};
};
static_assert(!TakesMisspelt<Extras>);

struct WithoutExtra : ByRanges {
  __device__ const Hidden* hidden(const Work&, int) const { return nullptr; }
};
struct WithoutFunction : ByRanges {
  static constexpr Extras kExtras = {.documents = true, .hidden_by_key = true};
  __device__ const Hidden* hidden_keys(const Work&, int) const { return nullptr; }
};
static_assert(names_its_extras<ByPairs>() && names_its_extras<ByRanges>() && names_its_extras<ByColumns>());
static_assert(!names_its_extras<WithoutExtra>() && !names_its_extras<WithoutFunction>());

class TileClasses : public MachineTest {
 protected:
  /// The tables of a problem, on the device.
  struct Uploaded {
    std::vector<device::Buffer> buffers;
    Tensors tensors;

    explicit Uploaded(const Spec& spec) {
      for (const FeatureTable& table : tables_of(spec)) {
        device::Buffer& buffer = buffers.emplace_back(device::Place::device, table.bytes.size());
        buffer.upload(table.bytes);
        tensors.tables[int(table.id)] = buffer.data();
      }
    }
  };
};

/// Returns the row of a query, looked up as the consumers do: by the tile's document, if it has one.
template <typename Policy>
__device__ auto row_of(const Policy& policy, const Work& work, int query) {
  if constexpr (Policy::kExtras.documents)
    if (work.document.queries > 0) return policy.row_in(work.document, query);
  return policy.row(work, query);
}

/// Writes a policy's class of every tile of `problem`, and whether each pair is visible. One warp.
template <typename Policy>
__global__ void look(Policy policy, Problem problem, int tiles,
                     TileClass* classes,  // [batch, heads, query tiles, key tiles]
                     int* pairs) {        // [batch, heads, seqlen_q, seqlen_k]
  const int query_tiles = ceil_div(problem.seqlen_q, kRows), key_tiles = ceil_div(problem.seqlen_k, kKeys);
  for (int index = 0; index < tiles; ++index) {
    Work work = policy.template work<kRows>(problem, index);
    if constexpr (Policy::kExtras.documents)  // like the warp that decides
      work.document = policy.document_of_all(work, kRows);
    const int last_query = min(work.first_query + kRows, problem.seqlen_q) - 1;
    const int head = work.head.batch * problem.heads + work.head.head;
    const auto seen = policy.template tiles<kKeys>(work, last_query);
    TileClass* const row = classes + (head * query_tiles + work.first_query / kRows) * key_tiles;
    for (int tile = threadIdx.x; tile < key_tiles; tile += 32) row[tile] = TileClass::skip;
    __syncwarp();  // tiles that are not candidates are skipped
    for (int i = threadIdx.x; i < seen.span.count; i += 32)
      row[seen.span.tile(i)] = seen.classify(seen.span.tile(i) * kKeys);
    for (int query = work.first_query; query <= last_query; ++query) {
      const auto keys = row_of(policy, work, query);
      for (int key = threadIdx.x; key < problem.seqlen_k; key += 32) {
        bool sees = keys.sees(key);
        if constexpr (Policy::kExtras.hidden_by_key)
          sees = sees && !(policy.hidden(work, key)->hidden_rows(query) & 1);
        pairs[(head * problem.seqlen_q + query) * problem.seqlen_k + key] = sees;
      }
    }
  }
}

/// Compares a policy's classes and pairs with the definition. Counts tiles that are needlessly partial.
template <typename Policy>
int expect_truth(const Spec& spec, const Policy& policy) {
  const int query_tiles = ceil_div(spec.seqlen_q, kRows), key_tiles = ceil_div(spec.seqlen_k, kKeys);
  const int heads = spec.batch * spec.heads;
  device::Buffer classes(device::Place::device, sizeof(TileClass) * heads * query_tiles * key_tiles);
  device::Buffer pairs(device::Place::device, sizeof(int) * heads * spec.seqlen_q * spec.seqlen_k);
  device::launch(look<Policy>, dim3(1), dim3(32), 0, device::Stream{}, policy, problem_of(spec),
                 heads * query_tiles, static_cast<TileClass*>(classes.data()),
                 static_cast<int*>(pairs.data()));
  std::vector<TileClass> said(heads * query_tiles * key_tiles);
  classes.download(std::as_writable_bytes(std::span(said)));
  std::vector<int> seen(heads * spec.seqlen_q * spec.seqlen_k);
  pairs.download(std::as_writable_bytes(std::span(seen)));
  int inexact = 0;
  for (int head = 0; head < heads; ++head) {
    const auto sees = [&](int query, int key) {
      return sees_by_definition(spec, head / spec.heads, head % spec.heads, query, key);
    };
    for (int query = 0; query < spec.seqlen_q; ++query)
      for (int key = 0; key < spec.seqlen_k; ++key)
        EXPECT_EQ(seen[(head * spec.seqlen_q + query) * spec.seqlen_k + key] != 0, sees(query, key))
            << describe(spec) << ", head " << head << ", query " << query << ", key " << key;
    for (int row = 0; row < query_tiles; ++row)
      for (int tile = 0; tile < key_tiles; ++tile) {
        int visible = 0, rows = 0;
        for (int query = row * kRows; query < std::min(spec.seqlen_q, (row + 1) * kRows); ++query, ++rows)
          for (int key = tile * kKeys; key < std::min(spec.seqlen_k, (tile + 1) * kKeys); ++key)
            visible += sees(query, key);
        const TileClass exact = visible == 0              ? TileClass::skip
                                : visible == rows * kKeys ? TileClass::full
                                                          : TileClass::partial;
        const TileClass is = said[(head * query_tiles + row) * key_tiles + tile];
        inexact += is != exact;
        EXPECT_TRUE(is == exact || is == TileClass::partial)
            << describe(spec) << ", head " << head << ", tile of queries " << row << ", of keys " << tile;
      }
  }
  return inexact;
}

/// Returns a random mask reduced to what a step supports: ranges, and the parts of a visibility that `keep`
/// adds. Masks to which it adds nothing are drawn again.
template <typename Keep>
Spec mask_for(std::mt19937& random, const Keep& keep) {
  for (;;) {
    Spec spec = random_mask(random);
    const Visibility all = spec.visibility;
    spec.visibility = {.window = all.window, .prefix = all.prefix, .documents = all.documents};
    if (keep(all, spec.visibility)) return spec;
  }
}

bool keep_ranges(const Visibility&, Visibility&) { return true; }
bool keep_columns(const Visibility& all, Visibility& kept) {
  kept.columns = all.columns;
  return all.columns.bounds > 0;
}

InBatch order_of(const Spec& spec) { return {hopper::tile_order(spec, kRows, is_uneven(spec.visibility))}; }

TEST_F(TileClasses, ByRangesAreExactInOneDocument) {
  std::mt19937 random(1);
  int inexact = 0;
  for (int mask = 0; mask < kByRanges && !HasFailure(); ++mask) {
    const Spec spec = mask_for(random, keep_ranges);
    const Uploaded tables(spec);
    const int differ = expect_truth(spec, ByRanges{order_of(spec), {ranges_of(spec, tables.tensors)}, {}});
    if (spec.visibility.documents.first_query.empty()) {
      EXPECT_EQ(differ, 0) << describe(spec);
    }
    inexact += differ;
  }
  EXPECT_GT(inexact, 0) << "between two documents tiles may be called partial";
}

TEST_F(TileClasses, ByColumnsKeepTheirWord) {
  std::mt19937 random(2);
  for (int mask = 0; mask < kByColumns && !HasFailure(); ++mask) {
    const Spec spec = mask_for(random, keep_columns);
    const Columns& columns = spec.visibility.columns;
    const Uploaded tables(spec);
    const int key_tiles = ceil_div(spec.seqlen_k, kKeys), tiles = spec.batch * columns.heads * key_tiles;
    device::Buffer hidden(device::Place::device, sizeof(Hidden) * tiles * kKeys);
    device::Buffer of_tiles(device::Place::device, sizeof(HiddenOfTile) * tiles);
    const Scanned scanned{static_cast<Hidden*>(hidden.data()), static_cast<HiddenOfTile*>(of_tiles.data())};
    const ColumnBounds bounds{static_cast<const int*>(tables.tensors.tables[int(TableId::columns)]),
                              columns.bounds, spec.visibility.window.right == 0};
    device::launch(scan_columns<kKeys>, dim3((tiles + 3) / 4), dim3(kScanThreads), 0, device::Stream{},
                   bounds, spec.seqlen_q, spec.seqlen_k, tiles, scanned);
    const int group = columns.heads == 1 ? spec.heads : spec.heads / spec.kv_heads;
    expect_truth(spec, ByColumns{order_of(spec),
                                 {ranges_of(spec, tables.tensors)},
                                 scanned,
                                 group,
                                 columns.heads,
                                 key_tiles,
                                 kKeys,
                                 {}});
  }
}

/// A mask that does not classify tiles.
struct PairByPair {
  static constexpr bool kByHead = false;
  RangeMask ranges;

  __device__ KeyRanges row(int batch, int head, int query) const { return ranges.row(batch, head, query); }
};

TEST_F(TileClasses, ByFunctionsAreExact) {
  std::mt19937 random(3);
  for (int mask = 0; mask < kByFunctions && !HasFailure(); ++mask) {
    const Spec spec = mask_for(random, keep_ranges);
    const Uploaded tables(spec);
    const int key_tiles = ceil_div(spec.seqlen_k, kKeys), query_tiles = ceil_div(spec.seqlen_q, kRows);
    device::Buffer classes(device::Place::device, sizeof(TileClass) * query_tiles * key_tiles);
    auto* const list = static_cast<TileClass*>(classes.data());
    const PairByPair pairs{{{0, spec.seqlen_q, 0, spec.seqlen_k}, ranges_of(spec, tables.tensors)}};
    device::launch(classify_tiles<kRows, kKeys, PairByPair>, dim3((key_tiles + 3) / 4, query_tiles),
                   dim3(kClassifyThreads), 0, device::Stream{}, pairs, problem_of(spec), key_tiles, list);
    EXPECT_EQ(expect_truth(spec,
                           ByFunctions<PairByPair, Unchanged>{
                               order_of(spec), pairs, list, query_tiles, key_tiles, kRows, {}}),
              0);
  }
}

/// Finds the start of a head's row in a mask of pairs.
__global__ void find_row(ByPairs policy, Work work, int query, int64_t* offset) {
  *offset = policy.row(work, query).pair - policy.visible;
}

/// Finds the start of a head's intervals, and of the classes of its tiles, in tiles.
__global__ void find_tables(ByColumns columns, ByFunctions<PairByPair, Unchanged> functions, Work work,
                            int64_t* offsets) {
  offsets[0] = columns.hidden(work, 0) - columns.scanned.hidden;
  offsets[1] = functions.tiles<kKeys>(work, 0).classes - functions.classes;
}

TEST_F(TileClasses, TablesMayHaveMoreThanTwoBillionEntries) {
  constexpr int kTiles = 1 << 16, kHeads = 512;
  const Work work{
      {kHeads - 1, 1}, {0, kTiles * kRows, 0, kTiles * kKeys}, {}, {}, (kTiles - 1) * kRows, 0, 0};
  const ByColumns columns{{}, {}, {}, 1, kHeads, kTiles, 128, {}};
  const ByFunctions<PairByPair, Unchanged> functions{{}, {}, nullptr, kTiles, kTiles, kRows, {}};
  device::Buffer buffer(device::Place::device, 2 * sizeof(int64_t));
  device::launch(find_tables, dim3(1), dim3(1), 0, device::Stream{}, columns, functions, work,
                 static_cast<int64_t*>(buffer.data()));
  int64_t offsets[2];
  buffer.download(std::as_writable_bytes(std::span(offsets)));
  EXPECT_EQ(offsets[0], int64_t(2 * kHeads - 1) * kTiles * 128);
  EXPECT_EQ(offsets[1], int64_t(kTiles - 1) * kTiles);
}

/// Finds the tables of step 6, whose blocks own keys: a head's intervals, its classes of tiles, and the first
/// element of a row of a tensor.
__global__ void find_gradient_tables(IntervalMask intervals, PairMask pairs, KeyWork work, int list,
                                     Strides strides, int64_t* offsets) {
  offsets[0] = intervals.tiles<kKeys, kRows>(work, list).hidden - intervals.scanned.tiles;
  offsets[1] = pairs.tiles<kKeys, kRows>(work, list).classes - pairs.classes;
  offsets[2] = offset_of(strides, work.head, work.first_key);
}

TEST_F(TileClasses, TablesOfGradientsMayHaveMoreThanTwoBillionEntries) {
  constexpr int kTiles = 1 << 16, kList = (1 << 16) - 1;
  const int rows = kTiles * kRows, keys = kTiles * kKeys;
  const KeyWork work{{0, rows, 0, keys}, {31, 7}, {}, {}, keys - kKeys, kTiles - 1, 0, 0};
  HiddenOfTile somewhere;
  const IntervalMask intervals{
      {Band::kNoLimit, Band::kNoLimit, 0, 0}, {}, {nullptr, &somewhere}, kTiles, kKeys, kList + 1, 1};
  const PairMask pairs{nullptr, 1, rows, keys, {}, nullptr, kTiles, kTiles};
  const Strides strides{int64_t(32) * keys * 128, int64_t(keys) * 128, 128};
  device::Buffer buffer(device::Place::device, 3 * sizeof(int64_t));
  device::launch(find_gradient_tables, dim3(1), dim3(1), 0, device::Stream{}, intervals, pairs, work, kList,
                 strides, static_cast<int64_t*>(buffer.data()));
  int64_t offsets[3];
  buffer.download(std::as_writable_bytes(std::span(offsets)));
  EXPECT_EQ(offsets[0], int64_t(kList) * kTiles + kTiles - 1);
  EXPECT_EQ(offsets[1], int64_t(kList) * kTiles * kTiles + kTiles - 1);
  EXPECT_EQ(offsets[2], (int64_t(8) * 32 * keys - kKeys) * 128);
}

TEST_F(TileClasses, AMaskMayHaveMoreThanFourBillionPairs) {
  constexpr int kLength = 65536;
  const Work work{{3, 1}, {0, kLength, 0, kLength}, {}, {}, 0, 0, 0};
  const ByPairs policy{{}, nullptr, 4, {}};
  device::Buffer offset(device::Place::device, sizeof(int64_t));
  device::launch(find_row, dim3(1), dim3(1), 0, device::Stream{}, policy, work, kLength - 1,
                 static_cast<int64_t*>(offset.data()));
  int64_t is = 0;
  offset.download(std::as_writable_bytes(std::span(&is, 1)));
  EXPECT_EQ(is, (int64_t(7) * kLength + kLength - 1) * kLength);
}

}  // namespace
}  // namespace flashbook::testing
