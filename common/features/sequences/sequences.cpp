#include "common/features/sequences/sequences.h"

#include <limits>

#include "common/features/helpers.h"
#include "common/features/sequences/sequences_c.h"
#include "common/features/window/ranges.h"

namespace flashbook {
namespace {

constexpr std::size_t kMaxDocuments = 1 << 28;

const Documents& documents_in(const Spec& spec) { return spec.visibility.documents; }

bool is_packed(const Spec& spec) { return documents_in(spec) != Documents{}; }

}  // namespace

int document_count(const Spec& spec) { return std::max(1, int(documents_in(spec).first_query.size()) - 1); }

int document_of(const Spec& spec, int query) {
  const Array<int>& first = documents_in(spec).first_query;
  if (first.empty()) return 0;
  return int(std::ranges::upper_bound(first, query) - first.begin()) - 1;
}

Segment segment(const Spec& spec, int batch, int document) {
  if (!is_packed(spec)) return {0, spec.seqlen_q, 0, spec.length_of(batch)};
  const Documents& d = documents_in(spec);
  const int query = d.first_query[document], key = d.first_key[document];
  return {query, d.first_query[document + 1] - query, key, d.first_key[document + 1] - key};
}

int64_t sequences_of(const Spec& spec) { return is_packed(spec) ? document_count(spec) : spec.batch; }

int sequence_of(const Spec& spec, int batch, int query) {
  return is_packed(spec) ? document_of(spec, query) : batch;
}

int64_t own_key(const Spec& spec, int batch, int query) {
  return segment(spec, batch, document_of(spec, query)).own_key(query);
}

namespace features {
namespace {

/// Splits `rows` into `parts` parts, as evenly as possible.
std::vector<int> evenly(int rows, int parts) {
  std::vector<int> first;
  for (int64_t part = 0; part <= parts; ++part) first.push_back(int(part * rows / parts));
  return first;
}

/// Reads the lengths of a cache's sequences, or of sequences packed into one batch entry.
void read_lengths(const Value& value, Request& to) {
  const Given& given = to.given;
  Spec& spec = to.spec;
  const bool cache = to.operation == Operation::decode;
  for (const char* option : {cache ? "--batch" : "--seqlen", "--seqlen-k", cache ? "" : "--documents"})
    if (given.contains(option))
      throw InputError(option, " contradicts --lengths, which determines it: leave one of them out");
  std::vector<int> lengths, first = {0};
  int64_t tokens = 0;
  for (const Value& word : value.split()) {
    tokens += lengths.emplace_back(word.text == "0" ? 0 : word.count());
    if (!cache && tokens > std::numeric_limits<int>::max())
      throw InputError("--lengths has more than 2^31 tokens: give fewer");
    first.push_back(int(tokens));
  }
  if (cache) {
    spec.batch = int(lengths.size());
    spec.seqlen_k = std::max(1, *std::ranges::max_element(lengths));
    spec.visibility.lengths = lengths;
    return;
  }
  if (const auto batch = given.find("--batch"); batch != given.end() && batch->second.text != "1")
    throw InputError("--batch is ", batch->second.text,
                     ", and --lengths packs all sequences into one entry: leave it out");
  if (tokens == 0) throw InputError("--lengths has no tokens: give a length above 0");
  spec.batch = 1;
  spec.seqlen_q = spec.seqlen_k = int(tokens);
  spec.visibility.documents = {first, first};
}

/// Splits the sequence into documents whose lengths are as equal as possible.
void read_documents(const Value& value, Request& to) {
  Spec& spec = to.spec;
  const int parts = value.count();
  const int most = std::max(spec.seqlen_q, spec.seqlen_k);  // more documents would be empty
  if (parts > most)
    throw InputError("--documents is ", value.text, ": give at most ", most,
                     ", the larger of the numbers of queries and keys");
  spec.visibility.documents = {evenly(spec.seqlen_q, parts), evenly(spec.seqlen_k, parts)};
}

}  // namespace

const Definition lengths = {
    .plural = "sequences of different lengths in a batch",
    .cure = "give all sequences the same length",
    .is_in = [](const Spec& spec) { return !spec.visibility.lengths.empty(); },
    .give =
        [](Spec& spec, std::mt19937& random) {
          spec.visibility.lengths.resize(std::size_t(spec.batch));
          for (int& length : spec.visibility.lengths) length = between(random, 0, spec.seqlen_k);
        },
    .validate =
        [](const Spec& spec) {
          const Array<int>& lengths = spec.visibility.lengths;
          require_count("lengths", lengths.size(), spec.batch, "one per sequence");
          require_range("lengths", lengths, spec.seqlen_k, "the number of keys");
          require(!is_packed(spec),
                  "both documents and lengths are given: give documents for one sequence, or lengths for a "
                  "batch");
        },
    .describe = [](const Spec&) { return std::string("lengths by sequence"); },
    .tables = [](const Spec& spec) -> Tables {
      return {table(TableId::lengths, "lengths", spec.visibility.lengths)};
    },
    .options = {{.name = "--lengths",
                 .type = "LIST",
                 .help = "Lengths of the sequences, such as 1000,37,0,4096. They are packed one after "
                         "another; in steps that read a cache, they are numbers of cached keys",
                 .read = read_lengths,
                 .shown_by = Feature::documents}},
    .mask = &kRanges,
    .by_batch = true,
    .in_c = c_struct<FlashbookLengths, FLASHBOOK_LENGTHS>(
        [](const auto&, Spec& to) { to.visibility.lengths = on_device<int>(to.batch); },
        {{"lengths", place_of(TableId::lengths)}}),
};

const Definition documents = {
    .plural = "packed documents",
    .is_in = is_packed,
    .give =
        [](Spec& spec, std::mt19937& random) {
          const int parts = between(random, 1, 4);
          spec.visibility.documents = {cuts(random, parts, spec.seqlen_q),
                                       cuts(random, parts, spec.seqlen_k)};
        },
    .validate =
        [](const Spec& spec) {
          const Documents& d = documents_in(spec);
          require(d.first_query.size() >= 2,
                  "first_query has no documents: give at least a start and an end");
          require(d.first_query.size() <= kMaxDocuments, "there are ", d.first_query.size() - 1,
                  " documents: give at most 2^28");
          require_count("first_key", d.first_key.size(), int64_t(d.first_query.size()),
                        "as many as first_query");
          require_sums("first_query", d.first_query, spec.seqlen_q, "documents' queries");
          require_sums("first_key", d.first_key, spec.seqlen_k, "documents' keys");
        },
    .describe = [](const Spec& spec) { return concat(document_count(spec), " documents"); },
    .tables = [](const Spec& spec) -> Tables {
      return {table(TableId::document_query, "document_query", documents_in(spec).first_query),
              table(TableId::document_key, "document_key", documents_in(spec).first_key)};
    },
    .options = {{.name = "--documents",
                 .type = "N",
                 .help =
                     "Split the sequence into N documents of equal length that do not attend to each other",
                 .read = read_documents}},
    .mask = &kRanges,
    .in_c = c_struct<FlashbookDocuments, FLASHBOOK_DOCUMENTS>(
        [](const auto& from, Spec& to) {
          require_positive("documents", from.documents);
          const auto bounds = on_device<int>(from.documents + 1.0);
          to.visibility.documents = {bounds, bounds};
        },
        {{"first_query", place_of(TableId::document_query)}, {"first_key", place_of(TableId::document_key)}}),
};

}  // namespace features
}  // namespace flashbook
