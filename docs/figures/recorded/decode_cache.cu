/// \file
/// Prints what chapter 8's library does with a paged cache, operation by operation, and which keys each block
/// reads under its two plans, as JSON, from which recorded_data.py makes
/// docs/figures/interactive/decode_cache_data.js.
#include <cstdio>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "chapters/08_decoding/plan.cuh"
#include "chapters/08_decoding/serving/sequence.h"
#include "common/device/device.h"
#include "common/device/launch.h"

namespace flashbook {
namespace {

using namespace decoding;

constexpr int kPages = 8;

void print(std::span<const int> numbers) {
  std::printf("[");
  for (std::size_t i = 0; i < numbers.size(); ++i) std::printf("%s%d", i ? "," : "", numbers[i]);
  std::printf("]");
}

/// A cache of kPages pages with up to three sequences.
class Cache {
 public:
  explicit Cache(int rows) : pool_(kPages, rows), sequences_(3) {}

  void begin(int which) { sequences_[which] = std::make_unique<Sequence>(pool_); }
  void fork(int which, int from) { sequences_[which] = std::make_unique<Sequence>(sequences_[from]->fork()); }
  void end(int which) { sequences_[which].reset(); }
  void append(int which, int tokens) { copy_ = sequences_[which]->append(tokens); }
  void reset(int which, int length) { sequences_[which]->reset(length); }

  /// Performs an operation, and prints the state of the cache after it.
  void then(const char* what, const std::function<void()>& operation) {
    copy_.reset();
    std::string refused;
    try {
      operation();
    } catch (const OutOfPages& error) {
      refused = error.what();
    }
    std::printf("%s\n   {\"what\": \"%s\", \"refused\": \"%s\", \"copy\": ", told_++ ? "," : "", what,
                refused.c_str());
    print(copy_ ? std::vector<int>{copy_->from, copy_->to, copy_->rows} : std::vector<int>{});
    std::printf(", \"sequences\": [");
    for (int i = 0; i < int(sequences_.size()); ++i) {
      std::printf("%s", i ? ", " : "");
      if (!sequences_[i]) {
        std::printf("null");
        continue;
      }
      std::printf("{\"length\": %d, \"pages\": ", sequences_[i]->length());
      print(sequences_[i]->pages());
      std::printf("}");
    }
    std::vector<int> holders;
    for (int page = 0; page < kPages; ++page) holders.push_back(pool_.holders(page));
    std::printf("], \"holders\": ");
    print(holders);
    std::printf("}");
  }

 private:
  PagePool pool_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::optional<PageCopy> copy_;
  int told_ = 0;
};

/// The same operations with pages of any size.
void print_pages(int rows) {
  Cache cache(rows);
  std::printf("{\"rows\": %d, \"steps\": [", rows);
  cache.then("the pool is empty", [] {});
  cache.then("A begins with a prompt of 10 tokens", [&] { cache.begin(0), cache.append(0, 10); });
  cache.then("B = A.fork(): two answers to one prompt", [&] { cache.fork(1, 0); });
  cache.then("B.append(1): its first own token", [&] { cache.append(1, 1); });
  cache.then("A.append(1)", [&] { cache.append(0, 1); });
  cache.then("A.append(3)", [&] { cache.append(0, 3); });
  cache.then("C begins with a prompt of 7 tokens", [&] { cache.begin(2), cache.append(2, 7); });
  cache.then("B.append(4): four guesses at once", [&] { cache.append(1, 4); });
  cache.then("B.reset(12): three of them were wrong", [&] { cache.reset(1, 12); });
  cache.then("C.append(30)", [&] { cache.append(2, 30); });
  cache.then("A ends", [&] { cache.end(0); });
  cache.then("B ends", [&] { cache.end(1); });
  std::printf("]}");
}

constexpr int kKeys = 64, kMaxSegments = 16;

/// The keys that a block reads, as five numbers per segment: pack, first tile, end of the tiles, part, parts.
/// Each block has one warp.
__global__ void ask(Plan plan, decoding::Problem problem, int blocks,
                    int* found) {  // [blocks, kMaxSegments, 5]
  Segments<kKeys> segments(plan, problem, blocks);
  segments.begin(int(blockIdx.x));
  int* to = found + int64_t(blockIdx.x) * kMaxSegments * 5;
  for (decoding::Segment segment; segments.next(segment); to += 5) {
    const int numbers[] = {segment.pack, segment.begin, segment.end, segment.part, segment.parts};
    if (threadIdx.x == 0)
      for (int i = 0; i < 5; ++i) to[i] = numbers[i];
  }
}

struct Lengths {
  const char* name;
  std::vector<int> tiles;  ///< tiles per sequence
};

void print_plan(const Lengths& lengths, int kv_heads, int blocks, bool equal_work, bool first) {
  const int batch = int(lengths.tiles.size()), items = batch * kv_heads;
  const int parts = equal_work ? 1 : std::max(1, blocks / items),
            launched = equal_work ? blocks : items * parts;
  std::vector<int> keys;
  for (const int tiles : lengths.tiles) keys.push_back(tiles * kKeys);
  device::Buffer on_device(device::Place::device, keys.size() * sizeof(int));
  on_device.upload(std::as_bytes(std::span(keys)));
  std::vector<int> said(std::size_t(launched) * kMaxSegments * 5, -1);
  device::Buffer found(device::Place::device, said.size() * sizeof(int));
  found.upload(std::as_bytes(std::span(said)));
  decoding::Problem problem{};
  problem.batch = batch;
  problem.packs = device::Divisor(kv_heads);
  problem.lengths = static_cast<const int*>(on_device.data());
  const Plan plan{.parts = parts,
                  .equal_work = equal_work,
                  .row_tiles = 1,
                  .items_of_sequence = kv_heads,
                  .team = 1,
                  .first_key = 0};
  device::launch(ask, dim3(unsigned(launched)), dim3(32), 0, device::Stream{}, plan, problem, launched,
                 static_cast<int*>(found.data()));
  found.download(std::as_writable_bytes(std::span(said)));
  std::printf("%s\n  {\"lengths\": \"%s\", \"heads\": %d, \"blocks\": %d, \"plan\": \"%s\", \"tiles\": ",
              first ? "" : ",", lengths.name, kv_heads, blocks, equal_work ? "work" : "parts");
  print(lengths.tiles);
  std::printf(", \"segments\": [");
  for (int block = 0; block < launched; ++block) {
    std::printf("%s[", block ? "," : "");
    const int* row = &said[std::size_t(block) * kMaxSegments * 5];
    for (int i = 0; i < kMaxSegments && row[5 * i] >= 0; ++i) {
      std::printf("%s", i ? "," : "");
      print(std::span(row + 5 * i, 5));
    }
    std::printf("]");
  }
  std::printf("]}");
}

}  // namespace
}  // namespace flashbook

int main() {
  using namespace flashbook;
  std::printf("{\"pages\": [");
  for (const int rows : {4, 8, 16}) {
    std::printf("%s\n  ", rows == 4 ? "" : ",");
    print_pages(rows);
  }
  std::printf("],\n \"plans\": [");
  const Lengths kLengths[] = {{"even", {16, 16, 16, 16}},
                              {"uneven", {40, 12, 8, 4}},
                              {"one long", {52, 2, 3, 1}},
                              {"one alone", {64}},
                              {"one empty", {24, 0, 20, 20}}};
  bool first = true;
  for (const Lengths& lengths : kLengths)
    for (const int kv_heads : {1, 2})
      for (const int blocks : {8, 12})
        for (const bool equal_work : {false, true}) {
          print_plan(lengths, kv_heads, blocks, equal_work, first);
          first = false;
        }
  std::printf("]}\n");
}
