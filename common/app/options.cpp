#include "common/app/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <sstream>

#include "common/app/report.h"
#include "common/app/whole_file.h"
#include "common/attention/error.h"
#include "common/attention/npy.h"
#include "common/attention/pages.h"

namespace flashbook {

int64_t whole_number(const std::string& option, const std::string& text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, value);
  const bool kilo = error == std::errc() && rest + 1 == end && (*rest == 'k' || *rest == 'K');
  if (error != std::errc() || (rest != end && !kilo) || (kilo && std::abs(value) > (int64_t(1) << 50)))
    throw InputError(option + " is '" + text + "': give a whole number, such as 4096 or 4k");
  return kilo ? value * 1024 : value;
}

int count(const std::string& option, const std::string& text) {
  const int64_t value = whole_number(option, text);
  if (value < 1) throw InputError(option + " is " + text + ": give at least 1");
  if (value > std::numeric_limits<int>::max())
    throw InputError(option + " is " + text + ": give at most " +
                     std::to_string(std::numeric_limits<int>::max()));
  return int(value);
}

namespace {

/// The options as the user wrote them. Numbers stay text until their names can be said in the error.
struct Words {
  std::string batch, heads, kv_heads, seqlen, seqlen_k, head_dim, dtype, scale, scaling, means,
      layout = "bhsd";
  std::string step = "all", device = "auto", check = "auto", reps, seed = "1", json;
  std::string inspect, inspect_to;
  std::string lengths, window, documents, prefix, mask;  // what is visible
  std::string softcap, bias, dropout;                    // functions on scores
  std::string page_rows, shared_prefix;                  // where a cache lies
  std::map<TensorId, std::string> files;                 // of the operation's tensors
  bool causal = false, alibi = false, list = false;
};

float real_number(const std::string& option, const std::string& text) {
  std::size_t used = 0;
  float value = 0;
  try {
    value = std::stof(text, &used);
  } catch (const std::exception&) {
  }
  if (used == 0 || used != text.size())
    throw InputError(option + " is '" + text + "': give a number, such as 0.125");
  return value;
}

std::string names_of(std::span<const DType> types) {
  std::string names;
  for (DType type : types) names += (names.empty() ? "" : ", ") + std::string(name_of(type));
  return names;
}

DType dtype_of(const std::string& text, const Chapter& chapter) {
  const std::optional<DType> type = dtype_named(text);
  if (!type || std::find(chapter.dtypes.begin(), chapter.dtypes.end(), *type) == chapter.dtypes.end())
    throw InputError("--dtype is '" + text + "': chapter " + std::to_string(chapter.number) + " takes " +
                     names_of(chapter.dtypes));
  return *type;
}

/// Set before inputs are read, which are rounded as it says.
Scaling scaling_of(const std::string& text, const Chapter& chapter) {
  if (!text.empty() &&
      std::find(chapter.dtypes.begin(), chapter.dtypes.end(), DType::e4m3) == chapter.dtypes.end())
    throw InputError("--scaling is for e4m3, which chapter " + std::to_string(chapter.number) +
                     " does not take: leave it out");
  for (Scaling scaling : {Scaling::tensor, Scaling::head, Scaling::block})
    if (text.empty() || text == name_of(scaling)) return scaling;
  throw InputError("--scaling is '" + text + "': give tensor, head or block");
}

/// Likewise, when the type is known. Columns of what models compute have means, so they are taken out unless
/// the user says no.
bool centred_of(const std::string& text, DType type) {
  if (!text.empty() && text != "out" && text != "in")
    throw InputError("--means is '" + text + "': give out or in");
  if (!text.empty() && type != DType::e4m3)
    throw InputError("--means is for e4m3 and this is " + std::string(name_of(type)) + ": leave it out");
  return type == DType::e4m3 && text != "in";
}

std::vector<int> steps_of(const std::string& text, const Chapter& chapter) {
  std::vector<int> steps;
  if (text == "all") {
    for (int step = chapter.first_step; step <= chapter.last_step(); ++step) steps.push_back(step);
    return steps;
  }
  const int64_t step = whole_number("--step", text);
  if (step < chapter.first_step || step > chapter.last_step())
    throw InputError("--step is " + text + ": chapter " + std::to_string(chapter.number) + " has steps " +
                     std::to_string(chapter.first_step) + " to " +
                     std::to_string((chapter.further != nullptr ? *chapter.further : chapter).last_step()) +
                     ", or all; --list describes them");
  return {int(step)};
}

/// The descriptor that --step means, before anything else is parsed: its operation says which files there
/// are.
const Chapter& chapter_of_step(int argc, const char* const* argv, const Chapter& chapter) {
  if (chapter.further == nullptr) return chapter;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string number = word.starts_with("--step=")        ? word.substr(7)
                               : word == "--step" && i + 1 < argc ? argv[i + 1]
                                                                  : "";
    for (int step = chapter.further->first_step; step <= chapter.further->last_step(); ++step)
      if (number == std::to_string(step)) return *chapter.further;
  }
  return chapter;
}

/// "3,17" is query 17 of head 3, "1,3,17" that of batch entry 1.
RowOf row_of(const std::string& text, const Shape& shape) {
  std::vector<int64_t> numbers;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) numbers.push_back(whole_number("--inspect", part));
  if (numbers.size() == 2) numbers.insert(numbers.begin(), 0);
  if (numbers.size() != 3 || text.ends_with(','))
    throw InputError("--inspect is '" + text + "': give HEAD,QUERY or BATCH,HEAD,QUERY, such as 3,17");
  const int64_t counts[] = {shape.batch, shape.heads, shape.seqlen_q};
  const char* const names[] = {"batch entry", "head", "query"};
  for (int i = 0; i < 3; ++i)
    if (numbers[i] < 0 || numbers[i] >= counts[i])
      throw InputError("--inspect asks for " + std::string(names[i]) + " " + std::to_string(numbers[i]) +
                       ": there are 0 to " + std::to_string(counts[i] - 1));
  return {int(numbers[0]), int(numbers[1]), int(numbers[2])};
}

CheckMode check_mode(const std::string& text) {
  if (text == "auto") return CheckMode::automatic;
  if (text == "full") return CheckMode::full;
  if (text == "sample") return CheckMode::sample;
  if (text == "off") return CheckMode::off;
  throw InputError("--check is '" + text + "': give full, sample, off or auto");
}

}  // namespace

void check_device(const std::string& text) {
  const bool is_gpu = device::machine() == device::Machine::gpu;
  if (text == "auto" || text == (is_gpu ? "gpu" : "sim")) return;
  if (text == "gpu")
    throw device::HardwareMissing(
        "--device gpu: this program was built for the simulator. Build the GPU version: cmake --preset gpu "
        "&& cmake "
        "--build --preset gpu");
  if (text == "sim")
    throw InputError(
        "--device sim: this program was built for a GPU. Build the simulator's version: cmake --preset sim "
        "&& cmake "
        "--build --preset sim");
  throw InputError("--device is '" + text + "': give auto, gpu or sim");
}

void check_writable(const std::string& option, const std::string& file) {
  if (file.empty()) return;
  if (const std::string reason = why_not_writable(file); !reason.empty())
    throw InputError(option + " " + file + ": " + reason);
}

std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

namespace {

std::string dims_text(const std::vector<int64_t>& dims) {
  std::string text = "[";
  for (int64_t dim : dims) text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
  return text + "]";
}

bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

/// The option for a tensor's file: its name; O as an output is --output.
std::string option_of(const TensorSpec& tensor) {
  if (tensor.id == TensorId::o && tensor.role == Role::output) return "--output";
  return "--" + std::string(tensor.name);
}

/// Whether an input is computed if it is not given: of backward what a forward pass leaves.
bool is_optional(const TensorSpec& tensor) {
  return tensor.role == Role::input && (tensor.id == TensorId::o || tensor.id == TensorId::lse);
}

/// "--q, --k and --v"
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
    throw InputError(what + " has shape " + dims_text(array.shape) + ": it must be [batch, heads, seqlen" +
                     (is_lse ? "]" : ", head_dim]") + "; reshape it");
  for (int64_t dim : array.shape)
    if (dim < 1 || dim > std::numeric_limits<int>::max())
      throw InputError(what + " has shape " + dims_text(array.shape) +
                       ": every dimension must be at least 1");
  if (!is_lse && !all_finite(array.values))  // a row that sees no key has the log-sum-exp -inf
    throw InputError(what + " holds NaN or infinity, of which no attention can be computed: replace them");
  return array;
}

/// A number that a file determines. If the user gave it too, both must say the same.
int from_file(const std::string& option, const std::string& text, const std::string& file, int64_t value) {
  if (!text.empty() && count(option, text) != value)
    throw InputError(option + " " + text + " contradicts " + file + ", which says " + std::to_string(value) +
                     ": leave the option out");
  return int(value);
}

/// The type to compute in, by the option or by the files of Q, K and V.
DType dtype_of_files(const Words& words, const Chapter& chapter, const std::map<TensorId, NpyArray>& arrays) {
  if (!words.dtype.empty()) return dtype_of(words.dtype, chapter);
  const DType type = arrays.at(TensorId::q).dtype;
  if (type != arrays.at(TensorId::k).dtype || type != arrays.at(TensorId::v).dtype)
    throw InputError("the files hold different types: name the one to compute in with --dtype");
  if (std::find(chapter.dtypes.begin(), chapter.dtypes.end(), type) == chapter.dtypes.end())
    throw InputError("the files hold " + std::string(name_of(type)) + ", which chapter " +
                     std::to_string(chapter.number) + " does not compute in: round them with --dtype (" +
                     names_of(chapter.dtypes) + ")");
  return type;
}

/// Whether inputs come from files: all that cannot be computed, or none.
bool has_files(const Words& words, Operation operation) {
  int given = 0, inputs = 0;
  std::vector<std::string> computed, missing;  // options of what could be computed
  for (const TensorSpec& tensor : tensors_of(operation)) {
    if (tensor.role != Role::input) continue;
    const bool is_given = !words.files.at(tensor.id).empty();
    if (is_optional(tensor)) {
      (is_given ? computed : missing).push_back(option_of(tensor));
      continue;
    }
    ++inputs;
    given += is_given;
  }
  if ((given > 0 && given < inputs) || (given == 0 && !computed.empty()))
    throw InputError(input_options(operation) +
                     " go together: give all of these files, or none for random inputs");
  if (!computed.empty() && !missing.empty())
    throw InputError(computed[0] + " and " + missing[0] +
                     " are of one forward pass: give both, or none and they are computed");
  return given > 0;
}

/// Fills shape and inputs from the files: Q and K say what the shape is.
void read_inputs(const Words& words, const Chapter& chapter, Options& options) {
  std::map<TensorId, NpyArray> arrays;
  for (const TensorSpec& tensor : tensors_of(chapter.operation)) {
    if (const std::string& file = words.files.at(tensor.id); tensor.role == Role::input && !file.empty())
      arrays.emplace(tensor.id, read_tensor(tensor, file));
  }
  const std::string &q_file = words.files.at(TensorId::q), &k_file = words.files.at(TensorId::k);
  const std::vector<int64_t>&q = arrays.at(TensorId::q).shape, &k = arrays.at(TensorId::k).shape;
  Shape& shape = options.shape;
  shape.batch = from_file("--batch", words.batch, q_file, q[0]);
  shape.heads = from_file("--heads", words.heads, q_file, q[1]);
  shape.seqlen_q = from_file("--seqlen", words.seqlen, q_file, q[2]);
  shape.head_dim = from_file("--head-dim", words.head_dim, q_file, q[3]);
  shape.kv_heads = from_file("--kv-heads", words.kv_heads, k_file, k[1]);
  shape.seqlen_k = from_file("--seqlen-k", words.seqlen_k, k_file, k[2]);
  if (shape.is_latent())
    throw InputError("the files hold latent keys, of which V is a part: leave the files out");
  shape.dtype = dtype_of_files(words, chapter, arrays);
  shape.centred = centred_of(words.means, shape.dtype);

  Inputs inputs;
  for (const TensorSpec& tensor : tensors_of(chapter.operation)) {
    if (tensor.role != Role::input || !arrays.contains(tensor.id)) continue;
    NpyArray& array = arrays.at(tensor.id);
    if (const std::vector<int64_t> dims = dims_of(shape, tensor.id); array.shape != dims)
      throw InputError(option_of(tensor) + " " + words.files.at(tensor.id) + " has shape " +
                       dims_text(array.shape) + ": beside " + q_file + " and " + k_file + " it must be " +
                       dims_text(dims));
    inputs[tensor.id] = std::move(array.values);
  }
  round_inputs(shape, inputs);
  for (TensorId id : {TensorId::q, TensorId::k, TensorId::v, TensorId::o, TensorId::d_o})
    if (!all_finite(inputs[id]))
      throw InputError("the files hold values beyond the range of " + std::string(name_of(shape.dtype)) +
                       ": choose another --dtype");
  options.inputs = std::move(inputs);
}

/// "1000,37,0,4096": a number of tokens each, 0 allowed.
std::vector<int> lengths_of(const std::string& text) {
  std::vector<int> lengths;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    lengths.push_back(word == "0" ? 0 : count("--lengths", word));
    begin = end + 1;
  }
  return lengths;
}

/// Throws if an option is given that says what --lengths does.
void refuse_beside_lengths(std::initializer_list<std::pair<const char*, const std::string*>> options) {
  for (const auto& [option, text] : options)
    if (!text->empty())
      throw InputError(std::string(option) + " contradicts --lengths, which says it: leave one of them out");
}

/// Sets what --lengths says of a cache: the keys of each sequence.
void set_lengths(const Words& words, Shape& shape) {
  refuse_beside_lengths({{"--batch", &words.batch}, {"--seqlen-k", &words.seqlen_k}});
  shape.visibility.lengths = lengths_of(words.lengths);
  shape.batch = int(shape.visibility.lengths.size());
  shape.seqlen_k = std::max(1, *std::ranges::max_element(shape.visibility.lengths));
}

/// Sets what --page-rows and --shared-prefix say: pages in random order. The shape is otherwise complete.
void set_pages(const Words& words, const Chapter& chapter, uint64_t seed, Shape& shape) {
  if (words.page_rows.empty() && words.shared_prefix.empty()) return;
  if (chapter.operation != Operation::decode)
    throw InputError("--page-rows and --shared-prefix are for a cache, which chapter " +
                     std::to_string(chapter.number) + " does not read: leave them out");
  if (words.page_rows.empty()) throw InputError("--shared-prefix is a prefix of pages: give --page-rows too");
  const int rows = count("--page-rows", words.page_rows);
  const int shared = words.shared_prefix.empty() ? 0 : count("--shared-prefix", words.shared_prefix);
  if (shared % rows != 0 || shared > shape.seqlen_k)
    throw InputError("--shared-prefix is " + words.shared_prefix +
                     ": give whole pages, and at most as many keys as the sequences have");
  shape.paging = random_pages(shape, rows, shared, seed);
}

/// Sets what --lengths says of the shape: sequences packed into one batch entry.
void pack(const Words& words, Shape& shape) {
  refuse_beside_lengths(
      {{"--seqlen", &words.seqlen}, {"--seqlen-k", &words.seqlen_k}, {"--documents", &words.documents}});
  if (!words.batch.empty() && words.batch != "1")
    throw InputError("--batch is " + words.batch +
                     ", and --lengths packs all sequences into one entry: leave it out");
  int64_t tokens = 0;
  std::vector<int> first = {0};
  for (const int length : lengths_of(words.lengths)) {
    tokens += length;
    if (tokens > std::numeric_limits<int>::max())
      throw InputError("--lengths has more than 2^31 tokens: give fewer");
    first.push_back(int(tokens));
  }
  if (tokens == 0) throw InputError("--lengths has no token: give a length above 0");
  shape.batch = 1;
  shape.seqlen_q = shape.seqlen_k = int(tokens);
  shape.visibility.documents = {first, first};
}

/// Cuts `rows` into so many parts, as evenly as they go.
std::vector<int> evenly(int rows, int parts) {
  std::vector<int> first;
  for (int64_t part = 0; part <= parts; ++part) first.push_back(int(part * rows / parts));
  return first;
}

/// Sets what a file says: pairs [seqlen, seqlen_k] or [batch, heads or 1, seqlen, seqlen_k], or FlashMask's
/// intervals [batch, kv_heads or 1, seqlen_k, 1, 2 or 4].
void read_mask(const std::string& file, Shape& shape) {
  NpyMask mask = read_npy_mask(file);
  const std::vector<int64_t>& dims = mask.shape;
  const auto refuse = [&](const std::string& wanted) {
    throw InputError("--mask " + file + " has shape " + dims_text(dims) + ": it must be " + wanted);
  };
  if (mask.pairs.empty()) {
    const bool fits = dims.size() == 4 && dims[0] == shape.batch &&
                      (dims[1] == 1 || dims[1] == shape.kv_heads) && dims[2] == shape.seqlen_k &&
                      (dims[3] == 1 || dims[3] == 2 || dims[3] == 4);
    if (!fits)
      refuse("[" + std::to_string(shape.batch) + ", 1 or " + std::to_string(shape.kv_heads) + ", " +
             std::to_string(shape.seqlen_k) + ", 1, 2 or 4]");
    shape.visibility.columns = {int(dims[1]), int(dims[3]), std::move(mask.intervals)};
    return;
  }
  const std::size_t n = dims.size();
  const bool fits =
      (n == 2 || (n == 4 && dims[0] == shape.batch && (dims[1] == 1 || dims[1] == shape.heads))) &&
      dims[n - 2] == shape.seqlen_q && dims[n - 1] == shape.seqlen_k;
  if (!fits) {
    const std::string rows = std::to_string(shape.seqlen_q) + ", " + std::to_string(shape.seqlen_k) + "]";
    refuse("[" + rows + " or [" + std::to_string(shape.batch) + ", 1 or " + std::to_string(shape.heads) +
           ", " + rows);
  }
  Dense& dense = shape.visibility.dense;
  dense.heads = n == 2 ? 1 : int(dims[1]);
  for (int batch = 0; batch < (n == 2 ? shape.batch : 1); ++batch)
    dense.visible.insert(dense.visible.end(), mask.pairs.begin(), mask.pairs.end());
}

/// A bias by distance from a file, [heads, 2 * reach + 1].
RelativeBias read_bias(const std::string& file, const Shape& shape) {
  NpyArray array = read_npy(file);
  const std::vector<int64_t>& dims = array.shape;
  if (dims.size() != 2 || dims[0] != shape.heads || dims[1] % 2 == 0 ||
      dims[1] > std::numeric_limits<int>::max())
    throw InputError("--bias " + file + " has shape " + dims_text(dims) + ": it must be [" +
                     std::to_string(shape.heads) + ", an odd number]");
  return {int(dims[1] / 2), std::move(array.values)};
}

/// What is visible, and what becomes of scores. Set when the shape is complete.
void fill_mask(const Words& words, uint64_t seed, Shape& shape) {
  Visibility& v = shape.visibility;
  if (words.causal) v.window.right = 0;
  if (!words.window.empty()) {
    v.window.left = words.window == "0" ? 0 : count("--window", words.window);
    v.window.right = words.causal ? 0 : v.window.left;
  }
  if (!words.prefix.empty()) {
    if (!words.causal && words.window.empty())
      throw InputError(
          "--prefix is what is seen besides --causal or --window, and without them all is: give one of them");
    v.prefix = count("--prefix", words.prefix);
  }
  if (!words.documents.empty()) {
    const int parts = count("--documents", words.documents);
    const int most = std::max(shape.seqlen_q, shape.seqlen_k);  // more would all be empty
    if (parts > most)
      throw InputError("--documents is " + words.documents + ": give at most " + std::to_string(most) +
                       ", as many as there are queries or keys");
    v.documents = {evenly(shape.seqlen_q, parts), evenly(shape.seqlen_k, parts)};
  }
  if (!words.mask.empty()) read_mask(words.mask, shape);
  if (!words.softcap.empty()) shape.score.softcap = real_number("--softcap", words.softcap);
  if (words.alibi)
    for (int head = 1; head <= shape.heads; ++head)
      shape.score.alibi.push_back(std::exp2(-8.0f * float(head) / float(shape.heads)));
  if (!words.bias.empty()) shape.score.bias = read_bias(words.bias, shape);
  if (!words.dropout.empty()) {
    shape.score.dropout = real_number("--dropout", words.dropout);
    if (shape.score.dropout != 0) shape.score.seed = seed;
  }
}

/// Set when the shape is complete.
Layout layout_of(const std::string& text, const Shape& shape) {
  if (text == "bhsd") return {};
  if (text == "bshd") return layout_bshd(shape);
  if (text != "qkv") throw InputError("--layout is '" + text + "': give bhsd, bshd or qkv");
  if (shape.seqlen_q != shape.seqlen_k)
    throw InputError("--layout qkv has as many keys as queries: leave --seqlen-k out");
  return layout_packed_qkv(shape);
}

/// Fills the shape from the options, and from the chapter's default for this machine.
void fill_shape(const Words& words, const Chapter& chapter, Options& options) {
  Shape& shape = options.shape;
  shape = device::machine() == device::Machine::gpu ? chapter.gpu_shape : chapter.cpu_shape;
  if (!words.batch.empty()) shape.batch = count("--batch", words.batch);
  if (!words.heads.empty()) shape.heads = shape.kv_heads = count("--heads", words.heads);
  if (!words.kv_heads.empty()) shape.kv_heads = count("--kv-heads", words.kv_heads);
  if (!words.seqlen.empty()) shape.seqlen_q = shape.seqlen_k = count("--seqlen", words.seqlen);
  if (!words.seqlen_k.empty()) shape.seqlen_k = count("--seqlen-k", words.seqlen_k);
  if (!words.head_dim.empty()) shape.head_dim = count("--head-dim", words.head_dim);
  if (!words.dtype.empty()) shape.dtype = dtype_of(words.dtype, chapter);
  if (!words.lengths.empty())
    chapter.operation == Operation::decode ? set_lengths(words, shape) : pack(words, shape);
  shape.scaling = scaling_of(words.scaling, chapter);
  shape.centred = centred_of(words.means, shape.dtype);
}

/// The options for the files of the operation's tensors.
void add_files(CLI::App& app, const Chapter& chapter, Words& words) {
  for (const TensorSpec& tensor : tensors_of(chapter.operation)) {
    const std::string dims =
        tensor.id == TensorId::lse ? "[batch, heads, seqlen]" : "[batch, heads, seqlen, head_dim]";
    const std::string help =
        tensor.role == Role::input
            ? std::string(title_of(tensor.id)) + " from a .npy file, float32 or float16, " + dims +
                  (is_optional(tensor) ? " (default: computed)" : "")
            : "Write " + std::string(title_of(tensor.id)) + " of the last step to this .npy file, as float32";
    app.add_option(option_of(tensor), words.files[tensor.id], help)->type_name("FILE");
  }
}

/// The files to write, which can be.
void take_outputs(const Words& words, const Chapter& chapter, Options& options) {
  std::map<std::string, std::string> taken;  // file by option
  const auto take = [&](const std::string& option, const std::string& file) {
    check_writable(option, file);
    for (const auto& [other, name] : taken)
      if (same_file(name, file))
        throw InputError(other + " " + name + " and " + option + " " + file +
                         " are one file, of which the last would be left: name two");
    taken[option] = file;
  };
  for (const TensorSpec& tensor : tensors_of(chapter.operation)) {
    const std::string& file = words.files.at(tensor.id);
    if (tensor.role == Role::input || file.empty()) continue;
    take(option_of(tensor), file);
    options.outputs[tensor.id] = file;
  }
  if (!words.json.empty()) take("--json", words.json);
  options.json = words.json;
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv, const Chapter& whole) {
  const Chapter& chapter = chapter_of_step(argc, argv, whole);
  Words words;
  CLI::App app("Chapter " + std::to_string(chapter.number) + " of Flashbook: " + chapter.title, chapter.name);
  app.get_formatter()->column_width(26);
  app.add_option("--batch", words.batch, "Batch size")->type_name("N");
  app.add_option("--heads", words.heads, "Query heads")->type_name("N");
  app.add_option("--kv-heads", words.kv_heads, "Key and value heads, a divisor of --heads (default: as many)")
      ->type_name("N");
  app.add_option("--seqlen", words.seqlen, "Queries, and keys unless --seqlen-k is given; 4k means 4096")
      ->type_name("N");
  app.add_option("--seqlen-k", words.seqlen_k, "Keys")->type_name("N");
  app.add_option("--head-dim", words.head_dim,
                 "64, 128 or 256; 576: latent keys, which chapter 8's last step takes")
      ->type_name("N");
  app.add_flag("--causal", words.causal, "Query i sees keys up to i + seqlen_k - seqlen_q");
  app.add_option("--window", words.window,
                 "A query sees so many keys before its own, and as many after it unless --causal is given")
      ->type_name("N");
  app.add_option("--prefix", words.prefix, "The first N keys are seen besides")->type_name("N");
  app.add_option("--documents", words.documents,
                 "So many documents of equal length, which do not see each other")
      ->type_name("N");
  app.add_option("--lengths", words.lengths,
                 "Sequences of these lengths: 1000,37,0,4096. Packed, or of a cache the keys of each")
      ->type_name("LIST");
  app.add_option("--page-rows", words.page_rows, "A cache in pages of so many keys, in random order")
      ->type_name("N");
  app.add_option("--shared-prefix", words.shared_prefix,
                 "The first N keys of all sequences lie in the same pages")
      ->type_name("N");
  app.add_option(
         "--mask", words.mask,
         "A mask from a .npy file: bool, which pairs are visible, [seqlen, seqlen_k]; or FlashMask's int32 "
         "intervals, [batch, heads, seqlen_k, bounds]")
      ->type_name("FILE");
  app.add_option("--softcap", words.softcap, "Scores s become X * tanh(s / X)")->type_name("X");
  app.add_flag("--alibi", words.alibi, "Scores lose slope * distance, with slopes 2^(-8 (h + 1) / heads)");
  app.add_option(
         "--bias", words.bias,
         "What scores gain by distance, from a .npy file, [heads, 2 R + 1]: of a key d places after a "
         "query's own column R + d, of one further away than R the outermost")
      ->type_name("FILE");
  app.add_option("--dropout", words.dropout,
                 "The part of the probabilities that is left out, by --seed (default: 0)")
      ->type_name("P");
  app.add_option("--dtype", words.dtype, "Element type: " + names_of(chapter.dtypes))->type_name("TYPE");
  app.add_option("--scale", words.scale, "Factor on the scores (default: 1 / sqrt(head_dim))")
      ->type_name("X");
  app.add_option("--scaling", words.scaling, "Of e4m3, a scale per tensor (default), head or block of rows")
      ->type_name("WHAT");
  app.add_option("--means", words.means,
                 "Of e4m3, the means of the columns of K and V: out (default), quantised without them; or in")
      ->type_name("WHERE");
  app.add_option("--step", words.step, "Which step, or all (default)")->type_name("N");
  app.add_option("--device", words.device,
                 "auto (default), gpu or sim: refuse to run if this build is for the other")
      ->type_name("NAME");
  add_files(app, chapter, words);
  app.add_option("--layout", words.layout,
                 "Where the program's tensors lie: bhsd, [batch, heads, seqlen, head_dim] (default); bshd, "
                 "[batch, seqlen, heads, head_dim]; or qkv, slices of one tensor")
      ->type_name("NAME");
  app.add_option("--check", words.check, "Rows held against the oracle: full, sample, off or auto (default)")
      ->type_name("HOW");
  app.add_option("--reps", words.reps, "Timed runs of a step (default: as many of 30 as fit two seconds)")
      ->type_name("N");
  app.add_option("--json", words.json, "Write the report to this file")->type_name("FILE");
  app.add_option("--seed", words.seed,
                 "Seed of the random inputs, and of what --dropout leaves out (default: 1)")
      ->type_name("N");
  app.add_option(
         "--inspect", words.inspect,
         "Instead of a run: HEAD,QUERY (or BATCH,HEAD,QUERY), scores, P, maximum, sum, correction and O of "
         "a row, tile by tile, beside the oracle's")
      ->type_name("ROW");
  app.add_option("--inspect-to", words.inspect_to, "Folder for them as .npy files")->type_name("DIR");
  app.add_flag("--list", words.list, "Describe the steps and stop");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return {std::nullopt, app.help(), &chapter};
  } catch (const CLI::ParseError& error) {
    throw InputError(one_line(error.what()) + " (--help lists the options)");
  }
  // An empty value would pass for an option that was not given.
  for (const CLI::Option* option : app.get_options())
    if (option->get_items_expected() > 0 && option->count() > 0 && option->results().front().empty())
      throw InputError(option->get_name() + " is empty: give a value, or leave the option out");

  Options options;
  options.list = words.list;
  if (options.list) return {std::move(options), "", &whole};
  check_device(words.device);
  options.every_step = words.step == "all";
  options.steps = steps_of(words.step, chapter);
  options.check = check_mode(words.check);
  if (!words.reps.empty()) options.reps = count("--reps", words.reps);
  const int64_t seed = whole_number("--seed", words.seed);
  if (seed < 0) throw InputError("--seed is " + words.seed + ": give a number from 0 on");
  options.seed = uint64_t(seed);
  take_outputs(words, chapter, options);

  fill_shape(words, chapter, options);
  if (has_files(words, chapter.operation)) {
    for (const auto& [option, text] :
         {std::pair("--lengths", words.lengths), {"--page-rows", words.page_rows}})
      if (!text.empty())
        throw InputError(std::string(option) + " is for random inputs: leave it out, or the files");
    read_inputs(words, chapter, options);
  }
  Shape& shape = options.shape;
  fill_mask(words, options.seed, shape);
  shape.scale = default_scale(shape.head_dim);
  if (!words.scale.empty()) shape.scale = real_number("--scale", words.scale);
  set_pages(words, chapter, options.seed, shape);
  validate(shape);
  shape.layout = layout_of(words.layout, shape);
  if (!words.inspect.empty()) options.inspected = row_of(words.inspect, shape);
  if (!words.inspect_to.empty() && !options.inspected)
    throw InputError("--inspect-to is for what --inspect shows: say which row, such as --inspect 3,17");
  options.inspect_to = words.inspect_to;
  return {std::move(options), "", &chapter};
}

}  // namespace flashbook
