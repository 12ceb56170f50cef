#include "common/app/options.h"

#include <gtest/gtest.h>

#include <set>

#include "chapters/08_decoding/host/chapter.h"
#include "common/attention/error.h"

namespace flashbook::testing {
namespace {

Spec spec_of(std::vector<const char*> words) {
  words.insert(words.begin(), "08_decoding");
  return parse_command_line(int(words.size()), words.data(), kDecoding).options->spec;
}

TEST(CacheOptions, GiveEachSequenceItsLength) {
  const Spec spec = spec_of({"--lengths", "100,0,1k"});
  EXPECT_EQ(spec.batch, 3);
  EXPECT_EQ(spec.seqlen_k, 1024);
  EXPECT_EQ(spec.seqlen_q, 1);
  EXPECT_EQ(spec.visibility.lengths, (std::vector{100, 0, 1024}));
  EXPECT_THROW(spec_of({"--lengths", "100", "--batch", "1"}), InputError);
  EXPECT_THROW(spec_of({"--lengths", "100", "--seqlen-k", "100"}), InputError);
}

// Two sequences of 5 pages that share their first 2: 8 pages, all in use.
TEST(CacheOptions, PutKeysIntoPages) {
  const Paging paging =
      spec_of({"--batch", "2", "--seqlen-k", "70", "--page-rows", "16", "--shared-prefix", "32"}).paging;
  EXPECT_EQ(paging.rows, 16);
  EXPECT_EQ(paging.pages, 8);
  EXPECT_EQ(paging.shared, 32);
  ASSERT_EQ(paging.table.size(), 10u);
  EXPECT_EQ(std::set(paging.table.begin(), paging.table.end()), (std::set{0, 1, 2, 3, 4, 5, 6, 7}));
  for (int page : {0, 1}) EXPECT_EQ(paging.table[page], paging.table[5 + page]);
  EXPECT_THROW(spec_of({"--shared-prefix", "32"}), InputError);
  EXPECT_THROW(spec_of({"--page-rows", "16", "--shared-prefix", "40"}), InputError);
  EXPECT_THROW(spec_of({"--lengths", "70,30", "--page-rows", "16", "--shared-prefix", "32"}), InputError);
}

}  // namespace
}  // namespace flashbook::testing
