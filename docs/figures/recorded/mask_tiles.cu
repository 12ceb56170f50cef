/// \file
/// Prints how chapter 9's policies classify the tiles of some masks when its kernels call them, as JSON, from
/// which recorded_data.py makes docs/figures/interactive/mask_tiles_data.js.
#include <algorithm>
#include <cstdio>
#include <span>
#include <vector>

#include "chapters/09_masks/host/launch.cuh"
#include "chapters/09_masks/step4_flashmask.cuh"
#include "common/attention/cost.h"

namespace flashbook {
namespace {

using namespace masks;
using masks::Problem, masks::problem_of;

constexpr int kRows = 128, kKeys = 128, kLength = 2048, kTiles = kLength / kKeys;

struct Mask {
  const char *name, *words;
  Visibility visibility;
};

/// Returns a question and two answers: the second does not see the first.
Columns two_answers() {
  Columns columns{.heads = 1, .bounds = 1, .queries = std::vector<int>(kLength, kLength)};
  std::fill(columns.queries.begin() + 700, columns.queries.begin() + 1400, 1400);
  return columns;
}

std::vector<Mask> masks_of_figure() {
  const Documents documents{.first_query = {0, 300, 1000, 1128, 1650, kLength},
                            .first_key = {0, 300, 1000, 1128, 1650, kLength}};
  return {{"full", "none", {}},
          {"causal", "causal", Visibility::causal()},
          {"window256", "causal, window of 256", {.window = {.left = 255, .right = 0}}},
          {"window1024", "causal, window of 1024", {.window = {.left = 1023, .right = 0}}},
          {"sinks", "causal, window of 256, 4 sinks", {.window = {.left = 255, .right = 0, .sinks = 4}}},
          {"sides", "window of 200 to each side", {.window = {.left = 200, .right = 200}}},
          {"prefix", "causal, prefix of 700", {.window = {.right = 0}, .prefix = 700}},
          {"documents", "five documents", {.documents = documents}},
          {"causal_documents", "causal, five documents", {.window = {.right = 0}, .documents = documents}},
          {"answers", "a question, two answers", {.window = {.right = 0}, .columns = two_answers()}}};
}

/// Writes the classes of the tiles of keys that the producer requests for each tile of queries. One warp.
template <typename Policy>
__global__ void ask(Policy policy, Problem problem, TileClass* classes) {  // [kTiles, kTiles]
  for (int index = 0; index < kTiles; ++index) {
    const Work work = policy.template work<kRows>(problem, index);
    TileClass* const row = classes + work.first_query / kRows * kTiles;
    for (int tile = threadIdx.x; tile < kTiles; tile += 32) row[tile] = TileClass::skip;
    __syncwarp();  // non-candidate tiles are skipped
    const auto seen = policy.template tiles<kKeys>(work, work.first_query + kRows - 1);
    for (int i = threadIdx.x; i < seen.span.count; i += 32)
      row[seen.span.tile(i)] = seen.classify(seen.span.tile(i) * kKeys);
  }
}

template <typename Policy>
std::vector<TileClass> classes_by(const Policy& policy, const Spec& spec) {
  std::vector<TileClass> said(kTiles * kTiles);
  device::Buffer classes(device::Place::device, sizeof(TileClass) * said.size());
  device::launch(ask<Policy>, dim3(1), dim3(32), 0, device::Stream{}, policy, problem_of(spec),
                 static_cast<TileClass*>(classes.data()));
  classes.download(std::as_writable_bytes(std::span(said)));
  return said;
}

std::vector<TileClass> classes_of(const Spec& spec) {
  std::vector<device::Buffer> buffers;
  Tensors tensors;
  for (const FeatureTable& table : tables_of(spec)) {
    device::Buffer& buffer = buffers.emplace_back(device::Place::device, table.bytes.size());
    buffer.upload(table.bytes);
    tensors.tables[int(table.id)] = buffer.data();
  }
  const InBatch order{hopper::tile_order(spec, kRows, is_uneven(spec.visibility))};
  const Ranges ranges = ranges_of(spec, tensors);
  const Columns& columns = spec.visibility.columns;
  if (columns.bounds == 0) return classes_by(ByRanges{order, {ranges}, {}}, spec);
  device::Buffer hidden(device::Place::device, sizeof(Hidden) * kLength);
  device::Buffer of_tiles(device::Place::device, sizeof(HiddenOfTile) * kTiles);
  const Scanned scanned{static_cast<Hidden*>(hidden.data()), static_cast<HiddenOfTile*>(of_tiles.data())};
  const ColumnBounds bounds{static_cast<const int*>(tensors.tables[int(TableId::columns)]), columns.bounds,
                            spec.visibility.window.right == 0};
  device::launch(scan_columns<kKeys>, dim3((kTiles + 3) / 4), dim3(kScanThreads), 0, device::Stream{}, bounds,
                 kLength, kLength, kTiles, scanned);
  return classes_by(ByColumns{order, {ranges}, scanned, 1, 1, kTiles, kKeys, {}}, spec);
}

/// Counts the visible pairs of a tile by the mask's definition.
int visible_pairs_of(const Spec& spec, int row, int tile) {
  int count = 0;
  for (int query = row * kRows; query < (row + 1) * kRows; ++query)
    for (int key = tile * kKeys; key < (tile + 1) * kKeys; ++key) count += sees(spec, 0, 0, query, key);
  return count;
}

void print(const Mask& mask, bool first) {
  const Spec spec{{.batch = 1,
                   .heads = 1,
                   .kv_heads = 1,
                   .seqlen_q = kLength,
                   .seqlen_k = kLength,
                   .head_dim = 128,
                   .dtype = DType::bf16},
                  mask.visibility};
  const std::vector<TileClass> classes = classes_of(spec);
  std::printf("%s\n  {\"name\": \"%s\", \"words\": \"%s\", \"classes\": [", first ? "" : ",", mask.name,
              mask.words);
  for (int row = 0; row < kTiles; ++row) {
    std::printf("%s\"", row ? ", " : "");
    for (int tile = 0; tile < kTiles; ++tile) std::printf("%c", ".+#"[int(classes[row * kTiles + tile])]);
    std::printf("\"");
  }
  std::printf("], \"pairs\": [");
  for (int i = 0; i < kTiles * kTiles; ++i)
    std::printf("%s%d", i ? "," : "",
                classes[i] == TileClass::partial ? visible_pairs_of(spec, i / kTiles, i % kTiles)
                : classes[i] == TileClass::full  ? kRows * kKeys
                                                 : 0);
  std::printf("]}");
}

}  // namespace
}  // namespace flashbook

int main() {
  using namespace flashbook;
  std::printf("{\"length\": %d, \"tile\": %d, \"masks\": [", kLength, kKeys);
  bool first = true;
  for (const Mask& mask : masks_of_figure()) {
    print(mask, first);
    first = false;
  }
  std::printf("\n]}\n");
}
