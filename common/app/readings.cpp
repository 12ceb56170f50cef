#include "common/app/readings.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/app/whole_file.h"
#include "common/attention/error.h"
#include "common/attention/inputs.h"
#include "common/attention/npy.h"
#include "common/device/device.h"

namespace flashbook {
namespace {

bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

/// Returns option names such as "--q, --k and --v".
std::string input_options(Operation operation) {
  std::vector<std::string> options;
  for (const TensorSpec& tensor : tensors_of(operation))
    if (tensor.role == Role::input && !is_optional(tensor)) options.push_back(option_of(tensor));
  std::string text = options[0];
  for (std::size_t i = 1; i < options.size(); ++i)
    text += (i + 1 == options.size() ? " and " : ", ") + options[i];
  return text;
}

NpyArray read_tensor(const TensorSpec& tensor, const std::string& file) {
  NpyArray array = read_npy(file);
  const std::string what = option_of(tensor) + " " + file;
  const bool is_lse = tensor.id == TensorId::lse;
  if (array.shape.size() != (is_lse ? 3 : 4))
    throw InputError(what, " has shape ", dims_text(array.shape), ": it must be [batch, heads, seqlen",
                     (is_lse ? "]" : ", head_dim]"), "; reshape it");
  for (int64_t dim : array.shape)
    if (dim < 1 || dim > std::numeric_limits<int>::max())
      throw InputError(what, " has shape ", dims_text(array.shape), ": every dimension must be at least 1");
  if (!is_lse && !all_finite(array.values))  // the log-sum-exp of a row that sees no key is -inf
    throw InputError(what, " contains NaN or infinity, for which attention is undefined: replace them");
  return array;
}

/// Returns a number that a file determines. If the user gave it as well, both must agree.
int from_file(const Given& given, const char* option, const Value& file, int64_t value) {
  if (const auto other = given.find(option); other != given.end() && other->second.count() != value)
    throw InputError(option, " ", other->second.text, " contradicts ", file.text, ", which gives ", value,
                     ": leave the option out");
  return int(value);
}

/// Returns the type to compute in, chosen by the option or by the files of Q, K and V.
DType dtype_of_files(const Given& given, const Chapter& chapter, const std::map<TensorId, NpyArray>& arrays) {
  if (const auto name = given.find("--dtype"); name != given.end()) return dtype_of(name->second, chapter);
  const DType type = arrays.at(TensorId::q).dtype;
  if (type != arrays.at(TensorId::k).dtype || type != arrays.at(TensorId::v).dtype)
    throw InputError("the files hold different types: choose one with --dtype");
  if (!chapter.takes(type))
    throw InputError("the files hold ", name_of(type), ", which chapter ", chapter.number,
                     " does not support: convert them with --dtype (", names_of(chapter.dtypes), ")");
  return type;
}

}  // namespace

std::string writable(const Value& value) {
  if (const std::string reason = why_not_writable(value.text); !reason.empty())
    throw InputError(value.option, " ", value.text, ": ", reason);
  return value.text;
}

void check_device(const std::string& text) {
  const bool is_gpu = device::machine() == device::Machine::gpu;
  if (text == "auto" || text == (is_gpu ? "gpu" : "sim")) return;
  if (text == "gpu")
    throw device::HardwareMissing(
        "--device gpu: this program was built for the simulator. Build the GPU version: cmake --preset gpu "
        "&& cmake --build --preset gpu");
  if (text == "sim")
    throw InputError(
        "--device sim: this program was built for a GPU. Build the simulator's version: cmake --preset sim "
        "&& cmake --build --preset sim");
  Value{"--device", text}.refuse("give auto, gpu or sim");
}

std::string names_of(std::span<const DType> types) {
  std::string names;
  for (DType type : types) names += (names.empty() ? "" : ", ") + std::string(name_of(type));
  return names;
}

DType dtype_of(const Value& name, const Chapter& chapter) {
  const std::optional<DType> type = dtype_named(name.text);
  if (!type || !chapter.takes(*type))
    name.refuse("chapter " + std::to_string(chapter.number) + " takes " + names_of(chapter.dtypes));
  return *type;
}

bool is_smoothed(const Given& given, DType type) {
  const auto smooth = given.find("--smooth");
  if (smooth == given.end()) return type == DType::e4m3;
  const bool is_on = smooth->second.one_of<bool>({{"on", true}, {"off", false}});
  if (type != DType::e4m3)
    throw InputError("--smooth is for e4m3, but the type is ", name_of(type), ": leave it out");
  return is_on;
}

std::string option_of(const TensorSpec& tensor) {
  if (tensor.id == TensorId::o && tensor.role == Role::output) return "--output";
  return "--" + std::string(tensor.name);
}

bool is_optional(const TensorSpec& tensor) {
  return tensor.role == Role::input && (tensor.id == TensorId::o || tensor.id == TensorId::lse);
}

bool has_files(const Given& given, Operation operation) {
  int files = 0, inputs = 0;
  std::vector<std::string> computed, missing;  // options of tensors that could be computed
  for (const TensorSpec& tensor : tensors_of(operation)) {
    if (tensor.role != Role::input) continue;
    const bool is_given = given.contains(option_of(tensor));
    if (is_optional(tensor)) {
      (is_given ? computed : missing).push_back(option_of(tensor));
      continue;
    }
    ++inputs;
    files += is_given;
  }
  if ((files > 0 && files < inputs) || (files == 0 && !computed.empty()))
    throw InputError(input_options(operation),
                     " go together: give all of these files, or none for random inputs");
  if (!computed.empty() && !missing.empty())
    throw InputError(computed[0], " and ", missing[0],
                     " come from one forward pass: give both, or neither to have them computed");
  return files > 0;
}

void read_inputs(const Given& given, const Chapter& chapter, Options& options) {
  for (const char* option : {"--lengths", "--page-rows"})
    if (given.contains(option))
      throw InputError(option, " is for random inputs: leave out either it or the files");
  std::map<TensorId, NpyArray> arrays;
  for (const TensorSpec& tensor : tensors_of(options.operation))
    if (const auto file = given.find(option_of(tensor)); tensor.role == Role::input && file != given.end())
      arrays.emplace(tensor.id, read_tensor(tensor, file->second.text));
  const Value &q_file = given.at("--q"), &k_file = given.at("--k");
  const std::vector<int64_t>&q = arrays.at(TensorId::q).shape, &k = arrays.at(TensorId::k).shape;
  Spec& spec = options.spec;
  spec.batch = from_file(given, "--batch", q_file, q[0]);
  spec.heads = from_file(given, "--heads", q_file, q[1]);
  spec.seqlen_q = from_file(given, "--seqlen", q_file, q[2]);
  spec.set_head_dim(from_file(given, "--head-dim", q_file, q[3]));
  spec.kv_heads = from_file(given, "--kv-heads", k_file, k[1]);
  spec.seqlen_k = from_file(given, "--seqlen-k", k_file, k[2]);
  if (spec.is_latent())
    throw InputError("files of latent keys, of which V is a part, are not supported: leave the files out");
  spec.value_dim = int(arrays.at(TensorId::v).shape[3]);
  spec.dtype = dtype_of_files(given, chapter, arrays);
  spec.e4m3.mean_subtracted = is_smoothed(given, spec.dtype);

  Inputs inputs;
  for (auto& [id, array] : arrays) {
    if (const std::vector<int64_t> dims = dims_of(spec, id); array.shape != dims)
      throw InputError("--", name_of(id), " ", given.at("--" + std::string(name_of(id))).text, " has shape ",
                       dims_text(array.shape), ": with ", q_file.text, " and ", k_file.text, " it must be ",
                       dims_text(dims));
    inputs[id] = std::move(array.values);
  }
  round_inputs(spec, inputs);
  for (TensorId id : {TensorId::q, TensorId::k, TensorId::v, TensorId::o, TensorId::d_o})
    if (!all_finite(inputs[id]))
      throw InputError("the files contain values beyond the range of ", name_of(spec.dtype),
                       ": choose another --dtype");
  options.inputs = std::move(inputs);
}

RowOf row_of(const Value& value, const Spec& spec) {
  std::vector<int64_t> numbers;
  for (const Value& word : value.split()) numbers.push_back(word.whole());
  if (numbers.size() == 2) numbers.insert(numbers.begin(), 0);
  if (numbers.size() != 3) value.refuse("give HEAD,QUERY or BATCH,HEAD,QUERY, such as 3,17");
  const std::pair<const char*, int> counts[] = {
      {"batch entry", spec.batch}, {"head", spec.heads}, {"query", spec.seqlen_q}};
  for (int i = 0; i < 3; ++i)
    if (const auto& [name, count] = counts[i]; numbers[i] < 0 || numbers[i] >= count)
      throw InputError("--inspect requests ", name, " ", numbers[i], ": there are 0 to ", count - 1);
  return {int(numbers[0]), int(numbers[1]), int(numbers[2])};
}

}  // namespace flashbook
