/// \file
/// The definition of a feature. The oracle, bounds, costs, programs and tests query every feature, and none
/// of them by name.
#pragma once
#include <cstddef>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/attention/tensors.h"
#include "common/features/list.h"
#include "common/features/value.h"

namespace flashbook {

using Tables = std::vector<FeatureTable>;

/// A query and a key that it sees.
struct Pair {
  int batch, head, query, key;
  int64_t distance;  ///< from the query's own key to this key; positive for later keys
  int sequence;      ///< the document or, if there are none, the batch entry
};

/// A changed score, and its derivative with respect to the original score.
template <typename Sum>
struct Changed {
  Sum score, slope = 1;
};

/// The state of the command line when features read their options: all sizes, types and files are known.
struct Request {
  Spec& spec;
  Operation operation;
  uint64_t seed;
  const Given& given;
};

struct Option {
  const char* name = nullptr;  ///< "--softcap"
  const char* type = nullptr;  ///< "X": the help's placeholder for its value; null: no value
  const char* help = nullptr;
  void (*read)(const Value& value, Request& request) = nullptr;
  Features shown_by = {};  ///< other features that also show it in the help
};

/// A restriction on what queries see. A pair is visible if no mask hides it.
struct Mask {
  /// Returns whether the key is hidden from the query, by the plain definition.
  bool (*hides)(const Spec& spec, int batch, int head, int query, int key);
  /// A faster form of `hides`: returns the class of a tile whose queries all exist. It may return
  /// TileClass::partial if in doubt, but is exact for a single pair. Null: every pair is checked.
  TileClass (*classify)(const Spec& spec, int batch, int head, const ScoreTile& tile) = nullptr;
  /// Returns a range of keys that contains all keys these queries see. Null: all keys.
  KeyRange (*keys_seen)(const Spec& spec, int batch, int first_query, int last_query) = nullptr;
  /// Returns the visible pairs of one head, if this is the only mask. Null: counted by `classify`.
  double (*pairs)(const Spec& spec, int batch, int head) = nullptr;
  bool is_exact = false;  ///< `classify` never returns partial needlessly
};

/// A feature's struct in the C interface, library/flashbook.h. It begins with its kind and ends with its
/// pointers to device memory.
struct CStruct {
  struct Pointer {
    const char* name;
    std::size_t to;  ///< the position in Tensors to which it is copied
    std::size_t alignment = 4;
    bool may_be_null = false;
  };
  int kind = 0;  ///< FLASHBOOK_WINDOW; 0: the feature has no struct of its own
  std::size_t size = 0;
  /// Adds the feature to a problem with valid sizes. Throws InputError if no problem can have these values.
  void (*read)(const void* from, Spec& to) = nullptr;
  std::size_t pointer_count = 0;
  Pointer pointers[5] = {};
};

/// A feature. All members except the first three are optional, and are used only for problems that have the
/// feature.
struct Definition {
  const char* plural;  ///< its name in messages: "windows"
  const char* cure = "leave them out";
  bool (*is_in)(const Spec& spec);
  /// For tests: adds the feature to a valid problem, with random parameters and whatever else the feature
  /// requires.
  void (*give)(Spec& spec, std::mt19937& random) = nullptr;

  /// Throws InputError if the problem's parameters for this feature cannot be used.
  void (*validate)(const Spec& spec) = nullptr;
  /// Returns its description in a report: "a prefix of 3".
  std::string (*describe)(const Spec& spec) = nullptr;
  /// Returns arrays that a kernel reads, except empty ones and those already in device memory.
  Tables (*tables)(const Spec& spec) = nullptr;

  const char* group = nullptr;  ///< heading of its options in the help; null: masks or functions
  Option options[2] = {};
  /// Called when the options are read, whether or not they were given.
  void (*complete)(Request& request) = nullptr;

  /// The mask that hides the other pairs. Several features may share a mask.
  const Mask* mask = nullptr;
  bool by_head = false;   ///< heads may see different keys
  bool by_batch = false;  ///< batch entries may see different keys

  /// Returns the changed score, for the oracle and for plain attention in float.
  Changed<double> (*score)(const Spec& spec, const Pair& pair, double score) = nullptr;
  Changed<float> (*score_in_float)(const Spec& spec, const Pair& pair, float score) = nullptr;
  /// Returns a score that every row has and that belongs to no key.
  float (*sink)(const Spec& spec, int head) = nullptr;
  /// Returns the factor on a probability after the softmax.
  double (*kept)(const Spec& spec, const Pair& pair) = nullptr;

  /// Returns the same problem without the feature, and its inputs. Null: the oracle need not remove it.
  std::pair<Spec, Inputs> (*removed)(const Spec& spec, const Inputs& inputs) = nullptr;
  bool has_gradient = true;
  /// Returns the number of keys that no kernel need read: those that no query sees, and every sequence's copy
  /// but one of keys that are stored only once.
  double (*unread_keys)(const Spec& spec) = nullptr;

  CStruct in_c = {};
};

namespace features {
#define FLASHBOOK_ROW(name) extern const Definition name;
FLASHBOOK_FEATURES(FLASHBOOK_ROW)
#undef FLASHBOOK_ROW
}  // namespace features

/// Returns the definitions of all features, in order.
std::span<const Definition* const> definitions();
const Definition& definition_of(Feature feature);
/// Returns the enumerator's name, such as "sink_keys".
std::string_view name_of(Feature feature);

/// Returns the features that a problem has. A new member of Spec that no feature covers does not compile.
Features features_of(const Spec& spec);

/// Returns the definitions of a problem's features that have a member, such as &Definition::score.
template <typename Member>
std::vector<const Definition*> having(Member Definition::*member, const Spec& spec) {
  std::vector<const Definition*> found;
  for (const Definition* feature : definitions())
    if (feature->*member && feature->is_in(spec)) found.push_back(feature);
  return found;
}

template <typename T>
FeatureTable table(TableId id, std::string_view name, const Array<T>& values) {
  return {id, name, std::as_bytes(std::span(values.begin(), values.end()))};
}

}  // namespace flashbook
