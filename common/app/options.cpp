#include "common/app/options.h"

#include <algorithm>
#include <cctype>

#include "common/app/line.h"
#include "common/app/report.h"
#include "common/app/whole_file.h"

namespace flashbook {
namespace {

/// Returns the allowed values of --head-dim.
std::string head_dims_of(const Chapter& chapter) {
  const auto is_latent = [](const Step& step) { return step.needs.has(Feature::latent); };
  if (std::ranges::all_of(chapter.steps, is_latent)) return "576";
  const bool padded = chapter.accepts(Feature::any_head_dim);
  const bool latent = chapter.accepts(Feature::latent);
  return std::string(padded ? "a multiple of 8 up to 256" : "64, 128 or 256") +
         (latent ? ", or 576 for latent keys, which have a separate step" : "");
}

std::string help_of(const TensorSpec& tensor) {
  const std::string title(title_of(tensor.id));
  if (tensor.role == Role::output)
    return "Write " + title + " of the last step to this .npy file, as float32";
  return title + " from a .npy file, float32 or float16, " +
         (tensor.id == TensorId::lse ? "[batch, heads, seqlen]" : "[batch, heads, seqlen, head_dim]") +
         (is_optional(tensor) ? " (default: computed)" : "");
}

class Parser {
 public:
  explicit Parser(const Chapter& chapter)
      : chapter_(chapter),
        line_("Chapter " + std::to_string(chapter.number) + " of Flashbook: " + chapter.title, chapter.name) {
    options_.operation = chapter.step(1).operation;
    options_.steps = chapter.steps_of(options_.operation);
    spec_ = chapter.default_spec();
    declare_run();
    declare_shape();
    declare_files();
    declare_features();
    if (chapter.accepts(Feature::ranks)) declare_ranks();
    declare_inspection();
  }

  CommandLine parse(int argc, const char* const* argv) {
    if (std::string help = line_.parse(argc, argv); !help.empty()) return {std::nullopt, std::move(help)};
    options_.list = line_.given().contains("--list");
    if (!options_.list) line_.read();
    return {std::move(options_), ""};
  }

 private:
  void declare_run() {
    line_.group("What runs");
    line_.value("--step", "STEP", "The step to run, by name or number, or all (default); see --list",
                [this](auto& v) { set_step(v); });
    line_.flag("--list", "Describe the steps and exit", [](auto&) {});
    line_.device();
    line_.value("--check", "HOW", "Rows compared with the oracle: full, sample, off or auto (default)",
                [this](auto& v) {
                  options_.check = v.template one_of<CheckMode>({{"full", CheckMode::full},
                                                                 {"sample", CheckMode::sample},
                                                                 {"off", CheckMode::off},
                                                                 {"auto", CheckMode::automatic}});
                });
    line_.value("--reps", "N", "Timed runs per step (default: up to 30 in half a second; 1 in the simulator)",
                [this](auto& v) { options_.reps = v.count(); });
  }

  void declare_shape() {
    const bool quantised = chapter_.takes(DType::e4m3);
    const bool e4m3_cache = chapter_.accepts(Feature::e4m3_cache);
    line_.group("The shape");
    line_.count("--batch", "Batch size", spec_.batch);
    line_.value("--heads", "N", "Query heads", [this](auto& v) { spec_.heads = spec_.kv_heads = v.count(); });
    line_.count("--kv-heads", "Key and value heads, a divisor of --heads (default: the same number)",
                spec_.kv_heads);
    line_.value("--seqlen", "N", "Queries, and keys unless --seqlen-k is given; 4k means 4096",
                [this](auto& v) { spec_.seqlen_q = spec_.seqlen_k = v.count(); });
    line_.count("--seqlen-k", "Keys", spec_.seqlen_k);
    std::string head_dims = head_dims_of(chapter_);
    head_dims[0] = char(std::toupper(head_dims[0]));
    line_.value("--head-dim", "N", head_dims, [this](auto& v) { spec_.set_head_dim(v.count()); });
    line_.value("--dtype", "TYPE", "Element type: " + names_of(chapter_.dtypes),
                [this](auto& v) { spec_.dtype = dtype_of(v, chapter_); });
    line_.value(
        "--scaling", "WHAT", "e4m3: one scale per tensor (default), head or block of rows",
        [this](auto& v) { set_scaling(v); }, quantised || e4m3_cache);
    line_.value(
        "--cache", "TYPE", "Element type of K and V: 16 (default; the type of --dtype) or e4m3 (with scales)",
        [this](auto& v) {
          spec_.e4m3.cache = v.template one_of<bool>({{"16", false}, {"e4m3", true}});
        },
        e4m3_cache);
    line_.value(
        "--smooth", "HOW",
        "e4m3: subtract the column means of K and V before quantising: on (default) or off", [](auto&) {},
        quantised);
    line_.then([this] { spec_.e4m3.mean_subtracted = is_smoothed(line_.given(), spec_.dtype); });
  }

  /// How ranks communicate.
  void declare_ranks() {
    line_.group("The shape");
    line_.value("--transport", "HOW",
                "How ranks exchange messages: copies, by copy engines (default), or nccl, by NCCL's kernels",
                [this](auto& v) {
                  using device::Transport;
                  options_.together.transport = v.template one_of<Transport>(
                      {{"copies", Transport::copies}, {"nccl", Transport::nccl}});
                });
    line_.then([this] {
      if (const std::string reason = device::why_not(options_.together.transport, spec_.sharding.ranks);
          !reason.empty())
        throw InputError(reason);
    });
    line_.value("--margin", "N", "Multiprocessors to leave free for NCCL's kernels (default: 0)",
                [this](auto& v) { options_.together.margin = v.text == "0" ? 0 : v.count(); });
  }

  /// Declares files for the tensors of every operation that the chapter computes, and a run's other inputs
  /// and outputs.
  void declare_files() {
    line_.group("Inputs and outputs");
    line_.value("--seed", "N", "Seed for everything random (default: 1)", [this](auto& v) {
      const int64_t seed = v.whole();
      if (seed < 0) throw InputError("--seed is ", v.text, ": give 0 or more");
      options_.seed = uint64_t(seed);
    });
    std::vector<std::pair<std::string, std::string>> files;  // an option and its help
    for (const Operation operation : operations())
      for (const TensorSpec& tensor : tensors_of(operation)) {
        const auto file =
            std::ranges::find(files, option_of(tensor), &std::pair<std::string, std::string>::first);
        const std::string help = help_of(tensor),
                          where = "In " + steps_text(chapter_.steps_of(operation)) + ": " + help;
        if (file == files.end())
          files.emplace_back(option_of(tensor), operation == options_.operation ? help : where);
        else if (file->second != help)
          file->second += ". " + where;
      }
    for (const auto& [name, help] : files) line_.value(name, "FILE", help, [this](auto& v) { set_file(v); });
    line_.value("--json", "FILE", "Write the report to this file",
                [this](auto& v) { options_.json = written(v); });
    line_.then([this] {
      if (has_files(line_.given(), options_.operation)) read_inputs(line_.given(), chapter_, options_);
    });
  }

  void declare_features() {
    for (std::size_t bit = 0; bit < definitions().size(); ++bit) {
      const Definition& feature = *definitions()[bit];
      line_.group(feature.group != nullptr  ? feature.group
                  : feature.mask != nullptr ? "What is visible"
                                            : "Score functions");
      for (const Option& option : feature.options) {
        if (option.name == nullptr) break;
        const bool shown =
            chapter_.accepts(Feature(bit)) || (!option.shown_by.empty() && chapter_.accepts(option.shown_by));
        line_.value(
            option.name, option.type, option.help,
            [this, read = option.read](const Value& value) {
              Request request = this->request();
              read(value, request);
            },
            shown);
      }
      if (feature.complete != nullptr)
        line_.then([this, &feature] {
          Request request = this->request();
          feature.complete(request);
        });
    }
    line_.group("Score functions");
    line_.then([this] { spec_.scale = default_scale(spec_.head_dim); });
    line_.value("--scale", "X", "Factor applied to the scores (default: 1 / sqrt(head_dim))",
                [this](auto& v) { spec_.scale = v.real(); });
    line_.then([this] {
      validate_head_dim();
      validate(spec_);
    });
  }
  Request request() { return {spec_, options_.operation, options_.seed, line_.given()}; }

  void declare_inspection() {
    const bool has_rows = std::ranges::any_of(
        chapter_.steps, [](const Step& step) { return step.operation != Operation::backward; });
    line_.group("What runs");
    line_.value(
        "--inspect", "ROW",
        "Instead of a normal run, show scores, P, maximum, sum, correction and O of row HEAD,QUERY (or "
        "BATCH,HEAD,QUERY), tile by tile, next to the oracle's",
        [this](auto& v) { options_.inspected = row_of(v, spec_); }, has_rows);
    line_.value(
        "--inspect-to", "DIR", "Also write them as .npy files into this folder",
        [this](auto& v) {
          if (!options_.inspected)
            throw InputError("--inspect-to needs --inspect: name a row, such as --inspect 3,17");
          options_.inspect_to = v.text;
        },
        has_rows);
  }

  std::vector<Operation> operations() const {
    std::vector<Operation> all;
    for (const Step& step : chapter_.steps)
      if (std::ranges::count(all, step.operation) == 0) all.push_back(step.operation);
    return all;
  }

  void set_step(const Value& value) {
    if (value.text == "all") return;
    const int step = chapter_.find(value.text);
    if (step == 0) value.refuse("give " + chapter_.slugs() + ", or all");
    options_.every_step = false;
    options_.steps = {step};
    options_.operation = chapter_.step(step).operation;
  }

  /// If no step of the chapter supports a head dimension, the message lists the dimensions that the selected
  /// steps support.
  void validate_head_dim() const {
    try {
      validate({{.head_dim = spec_.head_dim}});
    } catch (const InputError&) {
      Chapter asked = chapter_;
      if (!options_.every_step) asked.steps = asked.steps.subspan(std::size_t(options_.steps[0] - 1), 1);
      throw InputError("--head-dim ", spec_.head_dim, " is not supported: give ", head_dims_of(asked));
    }
  }

  /// Stores the name of a tensor's file, if the steps have that tensor.
  void set_file(const Value& value) {
    for (const Operation operation : operations())
      for (const TensorSpec& tensor : tensors_of(operation)) {
        if (option_of(tensor) != value.option) continue;
        if (operation == options_.operation) {
          if (tensor.role == Role::output) options_.outputs[tensor.id] = written(value);
          return;
        }
      }
    for (const Operation operation : operations())
      if (operation != options_.operation)
        throw InputError(value.option, " is for ", steps_text(chapter_.steps_of(operation)),
                         ": choose one of these steps with --step, or leave this option out");
  }

  /// Returns the name of a file to be written, unless another option names it, too.
  std::string written(const Value& value) {
    const std::string file = writable(value);
    for (const Value& other : written_)
      if (same_file(other.text, file))
        throw InputError(other.option, " ", other.text, " and ", value.option, " ", file,
                         " name the same file, which would be overwritten: name two files");
    written_.push_back(value);
    return file;
  }

  void set_scaling(const Value& value) {
    if (!chapter_.takes(DType::e4m3) && !chapter_.accepts(Feature::e4m3_cache))
      throw InputError("--scaling is for e4m3, which chapter ", chapter_.number,
                       " does not support: leave it out");
    spec_.e4m3.scaling = value.one_of<Scaling>(
        {{"tensor", Scaling::tensor}, {"head", Scaling::head}, {"block", Scaling::block}});
  }

  const Chapter& chapter_;
  Line line_;
  Options options_;
  Spec& spec_ = options_.spec;
  std::vector<Value> written_;
};

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv, const Chapter& chapter) {
  return Parser(chapter).parse(argc, argv);
}

}  // namespace flashbook
