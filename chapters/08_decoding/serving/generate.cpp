#include "chapters/08_decoding/serving/generate.h"

#include <chrono>

#include "common/app/call.h"

namespace flashbook::decoding {
namespace {

constexpr DType kType = DType::bf16;
constexpr int64_t kRowBytes = Decoder::kHeadDim * 2;

device::Buffer uploaded(device::Place place, std::span<const std::byte> bytes) {
  device::Buffer buffer(place, bytes.size());
  buffer.upload(bytes);
  return buffer;
}

}  // namespace

CacheMemory::CacheMemory(const PagePool& pool, device::Place place)
    : rows_(pool.rows()),
      k_(place, pool.pages() * Decoder::kKvHeads * rows_ * kRowBytes),
      v_(place, k_.bytes()) {}

void CacheMemory::copy(const PageCopy& copy) {
  std::vector<std::byte> all(k_.bytes());
  for (device::Buffer* buffer : {&k_, &v_}) {
    buffer->download(all);
    for (int head = 0; head < Decoder::kKvHeads; ++head) {
      const int64_t from = (int64_t(copy.from) * Decoder::kKvHeads + head) * rows_ * kRowBytes;
      const int64_t to = (int64_t(copy.to) * Decoder::kKvHeads + head) * rows_ * kRowBytes;
      buffer->upload(std::span(all).subspan(from, copy.rows * kRowBytes), to);
    }
  }
}

void CacheMemory::write(const Sequence& sequence, int place, const std::vector<float>& key,
                        const std::vector<float>& value) {
  const std::vector<std::byte> k = encode(kType, key), v = encode(kType, value);
  for (int head = 0; head < Decoder::kKvHeads; ++head) {
    const int64_t page = sequence.pages()[place / rows_];
    const int64_t to = ((page * Decoder::kKvHeads + head) * rows_ + place % rows_) * kRowBytes;
    k_.upload(std::span(k).subspan(head * kRowBytes, kRowBytes), to);
    v_.upload(std::span(v).subspan(head * kRowBytes, kRowBytes), to);
  }
}

Spec spec_of(const PagePool& pool, const Sequence& sequence) {
  Spec spec = square_spec(1, Decoder::kHeads, 1, Decoder::kHeadDim, kType);
  spec.kv_heads = Decoder::kKvHeads;
  const Sequence* const batch[] = {&sequence};
  set_sequences(spec, pool, batch);
  return spec;
}

std::vector<float> attend(const Chapter& chapter, int step, const PagePool& pool, const CacheMemory& memory,
                          const Sequence& sequence, const std::vector<float>& query) {
  const Spec spec = spec_of(pool, sequence);
  const device::Place place = chapter.runs_on;
  const device::Buffer q = uploaded(place, encode(kType, query));
  device::Buffer o(place, q.bytes()), lse(place, Decoder::kHeads * sizeof(float));
  const Step& row = chapter.step(step);
  device::Buffer workspace(place, row.workspace_bytes(spec));
  workspace.upload(std::vector<std::byte>(row.zeroed_bytes(spec)), 0);
  Tensors tensors = {.q = q.data(),
                     .k = memory.keys(),
                     .v = memory.values(),
                     .o = o.data(),
                     .lse = static_cast<float*>(lse.data()),
                     .workspace = workspace.data()};
  std::vector<device::Buffer> tables;
  for (const FeatureTable& table : tables_of(spec)) {
    tables.push_back(uploaded(place, table.bytes));
    tensors.tables[int(table.id)] = tables.back().data();
  }
  row.run(spec, tensors, nullptr);
  std::vector<std::byte> bytes(o.bytes());
  o.download(bytes);
  device::synchronize();  // reports any error
  return decode(kType, bytes);
}

Generated generate(const Chapter& chapter, int step, const Decoder& decoder, PagePool& pool, int first,
                   int tokens, bool with_cache) {
  const auto start = std::chrono::steady_clock::now();
  CacheMemory memory(pool, chapter.runs_on);
  Sequence sequence(pool);
  Generated generated;
  std::vector<int> text = {first};
  while (int(generated.tokens.size()) < tokens) {
    if (!with_cache) sequence.reset();
    std::vector<float> x;
    while (sequence.length() < int(text.size())) {  // one token, or all
      const int place = sequence.length();
      if (const std::optional<PageCopy> copy = sequence.append(1)) memory.copy(*copy);
      x = decoder.embed(text[place], place);
      memory.write(sequence, place, decoder.key(x), decoder.value(x));
      ++generated.keys;
    }
    const std::vector<float> o = attend(chapter, step, pool, memory, sequence, decoder.query(x));
    generated.tokens.push_back(decoder.next_token(x, o));
    text.push_back(generated.tokens.back());
  }
  generated.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return generated;
}

}  // namespace flashbook::decoding
