#include "common/features/blocks/blocks.h"

#include "common/features/blocks/blocks_c.h"
#include "common/features/helpers.h"
#include "common/numeric/arithmetic.h"

namespace flashbook::features {

constexpr Mask kBlocks = {
    .hides =
        [](const Spec& spec, int, int, int query, int key) {
          const Blocks& b = spec.visibility.blocks;
          const int row = query / b.queries;
          return std::ranges::count(b.key_blocks.begin() + b.first[row],
                                    b.key_blocks.begin() + b.first[row + 1], key / b.keys) == 0;
        },
    .classify =
        [](const Spec& spec, int, int, const ScoreTile& tile) {
          const Blocks& b = spec.visibility.blocks;
          const int last_query = tile.first_query + tile.queries - 1;
          const int last_key = int(std::min<int64_t>(spec.seqlen_k, int64_t(tile.first_key) + tile.keys) - 1);
          const int first_block = tile.first_key / b.keys, last_block = last_key / b.keys;
          bool any = false, all = true;
          for (int row = tile.first_query / b.queries; row <= last_query / b.queries; ++row) {
            const auto begin = b.key_blocks.begin() + b.first[row],
                       end = b.key_blocks.begin() + b.first[row + 1];
            const auto listed =
                std::upper_bound(begin, end, last_block) - std::lower_bound(begin, end, first_block);
            any |= listed > 0;
            all &= listed == last_block - first_block + 1;
          }
          return class_of(any, all);
        },
    .keys_seen =
        [](const Spec& spec, int, int first_query, int last_query) {
          const Blocks& b = spec.visibility.blocks;
          int64_t first_block = spec.seqlen_k, end_block = 0;
          for (int row = first_query / b.queries; row <= last_query / b.queries; ++row) {
            if (b.first[row] == b.first[row + 1]) continue;
            first_block = std::min<int64_t>(first_block, b.key_blocks[b.first[row]]);
            end_block = std::max<int64_t>(end_block, b.key_blocks[b.first[row + 1] - 1] + 1);
          }
          return KeyRange{int(std::min<int64_t>(first_block * b.keys, spec.seqlen_k)),
                          int(std::min<int64_t>(end_block * b.keys, spec.seqlen_k))};
        },
};

const Definition blocks = {
    .plural = "lists of visible blocks",
    .is_in = [](const Spec& spec) { return spec.visibility.blocks.queries != 0; },
    .give =
        [](Spec& spec, std::mt19937& random) {
          Blocks blocks{.queries = between(random, 1, 9), .keys = between(random, 1, 9), .first = {0}};
          for (int query = 0; query < spec.seqlen_q; query += blocks.queries) {
            for (int block = 0; block * blocks.keys < spec.seqlen_k; ++block)
              if (!one_in(random, 3)) blocks.key_blocks.push_back(block);
            blocks.first.push_back(int(blocks.key_blocks.size()));
          }
          spec.visibility.blocks = std::move(blocks);
        },
    .validate =
        [](const Spec& spec) {
          const Blocks& b = spec.visibility.blocks;
          require(b.queries > 0 && b.keys > 0, "a block has no pairs: give at least 1 query and 1 key");
          const int64_t rows = ceil_div(int64_t(spec.seqlen_q), b.queries);
          const int64_t columns = ceil_div(int64_t(spec.seqlen_k), b.keys);
          require_count("first blocks", b.first.size(), rows + 1, "one per row of blocks, and the end");
          require_sums("first blocks", b.first, int(b.key_blocks.size()), "rows' blocks");
          require_range("key_blocks", b.key_blocks, columns - 1, "the number of blocks of keys");
          for (int64_t row = 0; row < rows && !b.first.is_on_device(); ++row)
            for (int i = b.first[row] + 1; i < b.first[row + 1]; ++i)
              require(b.key_blocks[i - 1] < b.key_blocks[i], "key_blocks are not in ascending order in row ",
                      row, ": sort them, without duplicates");
        },
    .describe =
        [](const Spec& spec) {
          return concat("listed blocks of ", spec.visibility.blocks.queries, " x ",
                        spec.visibility.blocks.keys);
        },
    .tables = [](const Spec& spec) -> Tables {
      return {table(TableId::block_first, "block_first", spec.visibility.blocks.first),
              table(TableId::block_keys, "block_keys", spec.visibility.blocks.key_blocks)};
    },
    .mask = &kBlocks,
    .in_c = c_struct<FlashbookBlocks, FLASHBOOK_BLOCKS>(
        [](const auto& from, Spec& to) {
          require_positive("block_queries", from.block_queries);
          const double rows = double(ceil_div(int64_t(to.seqlen_q), from.block_queries));
          to.visibility.blocks = {from.block_queries, from.block_keys, on_device<int>(rows + 1)};
        },
        {{"first_block", place_of(TableId::block_first)}, {"key_blocks", place_of(TableId::block_keys)}}),
};

}  // namespace flashbook::features
