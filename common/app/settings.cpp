#include "common/app/settings.h"

#include <algorithm>
#include <limits>

#include "common/attention/error.h"
#include "common/attention/pages.h"

namespace flashbook {
namespace {

/// Cuts `rows` into so many parts, as evenly as they go.
std::vector<int> evenly(int rows, int parts) {
  std::vector<int> first;
  for (int64_t part = 0; part <= parts; ++part) first.push_back(int(part * rows / parts));
  return first;
}

/// "1000,37,0,4096": each as an option's value.
std::vector<Value> split(const Value& list) {
  std::vector<Value> parts = {{list.option, ""}};
  for (const char c : list.text)
    if (c == ',')
      parts.push_back({list.option, ""});
    else
      parts.back().text += c;
  return parts;
}

}  // namespace

void set_lengths(const Value& value, const Given& given, Operation operation, Shape& shape) {
  const bool cache = operation == Operation::decode;
  for (const char* option : {cache ? "--batch" : "--seqlen", "--seqlen-k", cache ? "" : "--documents"})
    if (given.contains(option))
      throw InputError(option + std::string(" contradicts --lengths, which says it: leave one of them out"));
  std::vector<int> lengths, first = {0};
  int64_t tokens = 0;
  for (const Value& word : split(value)) {
    tokens += lengths.emplace_back(word.text == "0" ? 0 : word.count());
    if (!cache && tokens > std::numeric_limits<int>::max())
      throw InputError("--lengths has more than 2^31 tokens: give fewer");
    first.push_back(int(tokens));
  }
  if (cache) {
    shape.batch = int(lengths.size());
    shape.seqlen_k = std::max(1, *std::ranges::max_element(lengths));
    shape.visibility.lengths = lengths;
    return;
  }
  if (const auto batch = given.find("--batch"); batch != given.end() && batch->second.text != "1")
    throw InputError("--batch is " + batch->second.text +
                     ", and --lengths packs all sequences into one entry: leave it out");
  if (tokens == 0) throw InputError("--lengths has no token: give a length above 0");
  shape.batch = 1;
  shape.seqlen_q = shape.seqlen_k = int(tokens);
  shape.visibility.documents = {first, first};
}

void set_documents(const Value& value, Shape& shape) {
  const int parts = value.count();
  const int most = std::max(shape.seqlen_q, shape.seqlen_k);  // more would all be empty
  if (parts > most)
    throw InputError("--documents is " + value.text + ": give at most " + std::to_string(most) +
                     ", as many as there are queries or keys");
  shape.visibility.documents = {evenly(shape.seqlen_q, parts), evenly(shape.seqlen_k, parts)};
}

void set_pages(const Chapter& chapter, Operation operation, uint64_t seed, Shape& shape) {
  const auto [rows, shared] = std::pair(shape.paging.rows, shape.paging.shared);
  if (rows == 0 && shared == 0) return;
  if (operation != Operation::decode)
    throw InputError("--page-rows and --shared-prefix are for a cache, which chapter " +
                     std::to_string(chapter.number) + " does not read: leave them out");
  if (rows == 0) throw InputError("--shared-prefix is a prefix of pages: give --page-rows too");
  if (shared % rows != 0 || shared > shape.seqlen_k)
    throw InputError("--shared-prefix is " + std::to_string(shared) +
                     ": give whole pages, and at most as many keys as the sequences have");
  shape.paging = random_pages(shape, rows, shared, seed);
}

void set_layout(const Value& value, Shape& shape) {
  const auto layout = value.one_of<Layout (*)(const Shape&)>(
      {{"bhsd", nullptr}, {"bshd", layout_bshd}, {"qkv", layout_packed_qkv}});
  if (layout == layout_packed_qkv && shape.seqlen_q != shape.seqlen_k)
    throw InputError("--layout qkv has as many keys as queries: leave --seqlen-k out");
  if (layout != nullptr) shape.layout = layout(shape);
}

RowOf row_of(const Value& value, const Shape& shape) {
  std::vector<int64_t> numbers;
  for (const Value& word : split(value)) numbers.push_back(word.whole());
  if (numbers.size() == 2) numbers.insert(numbers.begin(), 0);
  if (numbers.size() != 3) value.refuse("give HEAD,QUERY or BATCH,HEAD,QUERY, such as 3,17");
  const std::pair<const char*, int> counts[] = {
      {"batch entry", shape.batch}, {"head", shape.heads}, {"query", shape.seqlen_q}};
  for (int i = 0; i < 3; ++i)
    if (const auto& [name, count] = counts[i]; numbers[i] < 0 || numbers[i] >= count)
      throw InputError("--inspect asks for " + std::string(name) + " " + std::to_string(numbers[i]) +
                       ": there are 0 to " + std::to_string(count - 1));
  return {int(numbers[0]), int(numbers[1]), int(numbers[2])};
}

}  // namespace flashbook
