// Sizes, and digests of the right numbers, which course/digests.py writes from the grader's formulas.
#include "chapters/09_masks/exercises/tiles.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using Problem = masks::Tiled;

const std::vector<Size<Problem>> kSizes = {{"n", &Problem::n, {1, 127, 1000, 1025, 2048}},
                                           {"window", &Problem::window, {0, 1, 127, 129, 300, 1000, 5000}},
                                           {"documents", &Problem::documents, {1, 3, 7}},
                                           {"length", &Problem::length, {5, 64, 200, 500}},
                                           {"tile", &Problem::tile, {64, 128, 192}}};

DIGESTS(Tiles, UnderACausalMask, causal_tiles, 1e-06, "a87ddc570c8ef45a56121ee3017c49950dcb5fc79f1fc7a8");
DIGESTS(Tiles, ThatNeedTheCausalMask, causal_partial_tiles, 1e-06,
        "ea9346b16aad89540436c92d06faf28a5ce5dd9f6098ca95");
DIGESTS(Tiles, UnderAWindow, window_tiles, 1e-06, "2fa19b4808b71ff20e2ac5f19d98fca3b166c277a85e7734");
DIGESTS(Tiles, FullUnderAWindow, window_full_tiles, 1e-06,
        "a5b7f8d47a1b71c7e27858dcac637249b139a8a1fced8ffb");
DIGESTS(Tiles, OfPackedDocuments, varlen_tiles, 1e-06, "e5095a8c2cfa488c9c4aa3af1c26ea4cd3ddca5131a4bfb5");
DIGESTS(Tiles, OfDocumentsAsAMask, document_tiles, 1e-06, "fbd8fc834e2ea958bb831f2539c442f9826a61d3a50b095a");
DIGESTS(Tiles, ShareOfVisiblePairs, visible_share, 1e-06, "bdb0b91e8c369274f0b51c19fea9cea8e31088314ee9e082");

}  // namespace
}  // namespace flashbook::testing
