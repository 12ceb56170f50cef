#include "common/app/options.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "common/app/line.h"
#include "common/app/report.h"
#include "common/app/whole_file.h"
#include "common/attention/pages.h"
#include "common/device/processes.h"

namespace flashbook {
namespace {

/// The allowed values of --head-dim.
std::string head_dims_of(const Chapter& chapter) {
  const auto is_latent = [](const Step& step) { return step.needs.has(Feature::latent); };
  if (std::ranges::all_of(chapter.steps, is_latent)) return "576";
  const bool padded = chapter.accepts(Feature::any_head_dim);
  const bool latent = chapter.accepts(Feature::latent);
  return std::string(padded ? "a multiple of 8 up to 256" : "64, 128 or 256") +
         (latent ? ", or 576: latent keys, which have a step of their own" : "");
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
    shape_ = chapter.default_shape();
    declare_run();
    declare_shape();
    declare_files();
    declare_visibility();
    declare_scores();
    declare_rest();
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
    line_.value("--step", "N", "Which step, or all (default)", [this](auto& v) { set_step(v); });
    line_.flag("--list", "Describe the steps and exit", [](auto&) {});
    line_.device();
    line_.value("--check", "HOW", "Rows compared with the oracle: full, sample, off or auto (default)",
                [this](auto& v) {
                  options_.check = v.template one_of<CheckMode>({{"full", CheckMode::full},
                                                                 {"sample", CheckMode::sample},
                                                                 {"off", CheckMode::off},
                                                                 {"auto", CheckMode::automatic}});
                });
    line_.value("--reps", "N",
                "Timed runs of a step (default: up to 30 within half a second; one in the simulator)",
                [this](auto& v) { options_.reps = v.count(); });
  }

  void declare_shape() {
    const bool quantised = chapter_.takes(DType::e4m3);
    const bool e4m3_cache = chapter_.accepts(Feature::e4m3_cache);
    line_.group("The shape");
    line_.count("--batch", "Batch size", shape_.batch);
    line_.value("--heads", "N", "Query heads",
                [this](auto& v) { shape_.heads = shape_.kv_heads = v.count(); });
    line_.count("--kv-heads", "Key and value heads, a divisor of --heads (default: equally many)",
                shape_.kv_heads);
    line_.value("--seqlen", "N", "Queries, and keys unless --seqlen-k is given; 4k means 4096",
                [this](auto& v) { shape_.seqlen_q = shape_.seqlen_k = v.count(); });
    line_.count("--seqlen-k", "Keys", shape_.seqlen_k);
    std::string head_dims = head_dims_of(chapter_);
    head_dims[0] = char(std::toupper(head_dims[0]));
    line_.count("--head-dim", head_dims.c_str(), shape_.head_dim);
    const bool has_ranks = chapter_.accepts(Feature::ranks);
    line_.count(
        "--ranks",
        "GPUs among which the tokens are divided; in the simulator any number. Under torchrun or mpirun: the "
        "number of processes",
        shape_.ranks, has_ranks);
    line_.value(
        "--order", "NAME",
        "Which tokens a GPU has: contiguous, zigzag or striped (default: the step's order)",
        [this](auto& v) {
          shape_.order = v.template one_of<TokenOrder>({{"contiguous", TokenOrder::contiguous},
                                                        {"zigzag", TokenOrder::zigzag},
                                                        {"striped", TokenOrder::striped}});
        },
        has_ranks);
    if (has_ranks) declare_ranks();
    line_.value("--dtype", "TYPE", "Element type: " + names_of(chapter_.dtypes),
                [this](auto& v) { shape_.dtype = dtype_of(v, chapter_); });
    line_.value(
        "--scaling", "WHAT", "e4m3: one scale per tensor (default), head or block of rows",
        [this](auto& v) { set_scaling(v); }, quantised || e4m3_cache);
    line_.value(
        "--cache", "TYPE", "Element type of K and V: 16 (default), the type of --dtype, or e4m3, with scales",
        [this](auto& v) {
          shape_.e4m3_cache = v.template one_of<bool>({{"16", false}, {"e4m3", true}});
        },
        e4m3_cache);
    line_.value(
        "--smooth", "HOW",
        "e4m3: subtract the column means of K and V before quantising: on (default) or off", [](auto&) {},
        quantised);
    line_.then([this] { shape_.mean_subtracted = is_smoothed(line_.given(), shape_.dtype); });
  }

  /// How ranks communicate, and where ranks that are processes meet.
  void declare_ranks() {
    if (const auto found = device::launched()) shape_.ranks = found->count;
    line_.value("--timeout", "SECONDS", "Seconds to wait for a process that does not respond (default: 600)",
                [this](auto& v) { patience_ = v.real(); });
    line_.then([this] {
      if (patience_ <= 0) throw InputError("--timeout is ", patience_, ": give seconds, more than 0");
      device::meet_processes(patience_);
      if (device::processes() != nullptr)
        device::use_device(device::device_of_rank(device::processes()->rank()));
      options_.together.transport = device::default_transport(shape_.ranks);
    });
    line_.value(
        "--transport", "HOW",
        "How messages travel: copies, by copy engines (default); nccl, by NCCL's kernels; sockets, between "
        "processes through the hosts' memory",
        [this](auto& v) {
          using device::Transport;
          options_.together.transport = v.template one_of<Transport>(
              {{"copies", Transport::copies}, {"nccl", Transport::nccl}, {"sockets", Transport::sockets}});
        });
    line_.then([this] {
      if (const std::string reason = device::why_not(options_.together.transport, shape_.ranks);
          !reason.empty())
        throw InputError(reason);
    });
    line_.value("--margin", "N",
                "Multiprocessors that attention leaves free, for NCCL's kernels (default: 0)",
                [this](auto& v) { options_.together.margin = v.text == "0" ? 0 : v.count(); });
  }

  /// Files for the tensors of every operation that the chapter computes, and other inputs and outputs of a
  /// run.
  void declare_files() {
    line_.group("Inputs and outputs");
    line_.value("--seed", "N", "Seed for everything random (default: 1)", [this](auto& v) {
      const int64_t seed = v.whole();
      if (seed < 0) throw InputError("--seed is ", v.text, ": give a number from 0 on");
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

  void declare_visibility() {
    Visibility& visible = shape_.visibility;
    const bool lengths = chapter_.accepts(Feature::lengths);
    const bool documents = chapter_.accepts(Feature::documents);
    const bool masks = chapter_.accepts(Feature::intervals) || chapter_.accepts(Feature::pairs);
    const bool pages = chapter_.accepts(Feature::pages);
    line_.group("What is visible");
    line_.value(
        "--window", "N",
        "A query sees the N keys before its own, and the N after it unless --causal is given",
        [&](auto& v) { visible.window.left = visible.window.right = v.text == "0" ? 0 : v.count(); },
        chapter_.accepts(Feature::window));
    line_.flag(
        "--causal", "Query i sees keys up to i + seqlen_k - seqlen_q",
        [&](auto&) { visible.window.right = 0; }, chapter_.accepts(Feature::causal));
    line_.value(
        "--prefix", "N", "Also attend to the leading N keys",
        [&](auto& v) {
          if (visible.window == Window{})
            throw InputError(
                "--prefix adds keys to what --causal or --window leaves visible: give one of them as well");
          visible.prefix = v.count();
        },
        chapter_.accepts(Feature::prefix));
    line_.value(
        "--lengths", "LIST",
        std::string("Sequences of these lengths: 1000,37,0,4096. ") +
            (lengths ? "Each sequence of the cache has this many keys" : "They are packed"),
        [this](auto& v) { set_lengths(v, line_.given(), options_.operation, shape_); }, documents || lengths);
    line_.value(
        "--documents", "N",
        "Split the sequence into N documents of equal length that do not attend to each other",
        [this](auto& v) { set_documents(v, shape_); }, documents);
    line_.count("--page-rows", "A cache in pages of N keys, in random order", shape_.paging.rows, pages);
    line_.count("--shared-prefix", "The first N keys of all sequences share their pages",
                shape_.paging.shared, pages);
    line_.then([this] { set_pages(chapter_, options_.operation, options_.seed, shape_); });
    line_.value(
        "--mask", "FILE",
        "A mask from a .npy file: bool, which pairs are visible, [seqlen, seqlen_k]; or FlashMask's "
        "int32 intervals, [batch, heads, seqlen_k, bounds]",
        [this](auto& v) { read_mask(v, shape_); }, masks);
  }

  void declare_scores() {
    ScoreFunction& score = shape_.score;
    line_.group("Score functions");
    line_.then([this] { shape_.scale = default_scale(shape_.head_dim); });
    line_.value("--scale", "X", "Factor of the scores (default: 1 / sqrt(head_dim))",
                [this](auto& v) { shape_.scale = v.real(); });
    line_.value(
        "--softcap", "X", "Scores s become X * tanh(s / X)", [&](auto& v) { score.softcap = v.real(); },
        chapter_.accepts(Feature::softcap));
    line_.flag(
        "--alibi", "Scores lose slope * distance, with slopes 2^(-8 (h + 1) / heads)",
        [&](auto&) {
          for (int head = 1; head <= shape_.heads; ++head)
            score.alibi.push_back(std::exp2(-8.0f * float(head) / float(shape_.heads)));
        },
        chapter_.accepts(Feature::alibi));
    line_.value(
        "--bias", "FILE",
        "Bias added to scores by distance, from a .npy file, [heads, 2 R + 1]: column R + d for a key d "
        "places after a query's own; beyond R, the outermost column",
        [&](auto& v) { score.bias = read_bias(v, shape_); }, chapter_.accepts(Feature::bias));
    line_.value(
        "--sinks", "X", "Every head has another score, X, that belongs to no key",
        [&](auto& v) { score.sinks.assign(std::size_t(shape_.heads), v.real()); },
        chapter_.accepts(Feature::sinks));
    line_.value(
        "--dropout", "P", "Fraction of the probabilities that is dropped, chosen by --seed (default: 0)",
        [&](auto& v) {
          score.dropout = v.real();
          if (score.dropout != 0) score.seed = options_.seed;
        },
        chapter_.accepts(Feature::dropout));
  }

  void declare_rest() {
    const bool has_rows = std::ranges::any_of(
        chapter_.steps, [](const Step& step) { return step.operation != Operation::backward; });
    line_.then([this] {
      validate_head_dim();
      validate(shape_);
    });
    line_.group("The shape");
    line_.value(
        "--layout", "NAME",
        "Layout of the program's tensors: bhsd, [batch, heads, seqlen, head_dim] (default); bshd, "
        "[batch, seqlen, heads, head_dim]; or qkv, slices of one tensor",
        [this](auto& v) { set_layout(v, shape_); }, chapter_.accepts(Feature::strides));
    line_.group("What runs");
    line_.value(
        "--inspect", "ROW",
        "Instead of running, show scores, P, maximum, sum, correction and O of row HEAD,QUERY (or "
        "BATCH,HEAD,QUERY), tile by tile, next to the oracle's",
        [this](auto& v) { options_.inspected = row_of(v, shape_); }, has_rows);
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
    int step = 1;
    while (step <= chapter_.last_step() && std::to_string(step) != value.text) ++step;
    if (step > chapter_.last_step())
      value.refuse("give one step of chapter " + std::to_string(chapter_.number) + ", 1 to " +
                   std::to_string(chapter_.last_step()) + ", or all; --list describes them");
    options_.every_step = false;
    options_.steps = {step};
    options_.operation = chapter_.step(step).operation;
  }

  /// If no step of the chapter supports a head dimension, the message lists those that the selected steps
  /// support.
  void validate_head_dim() const {
    try {
      validate({.head_dim = shape_.head_dim});
    } catch (const InputError&) {
      Chapter asked = chapter_;
      if (!options_.every_step) asked.steps = asked.steps.subspan(std::size_t(options_.steps[0] - 1), 1);
      throw InputError("--head-dim ", shape_.head_dim, " is not supported: give ", head_dims_of(asked));
    }
  }

  /// Takes the file of a tensor, if the steps have that tensor.
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
                         ": choose one with --step, or leave it out");
  }

  /// The name of a file to be written, unless another option has it, too.
  std::string written(const Value& value) {
    const std::string file = value.writable();
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
                       " does not take: leave it out");
    shape_.scaling = value.one_of<Scaling>(
        {{"tensor", Scaling::tensor}, {"head", Scaling::head}, {"block", Scaling::block}});
  }

  const Chapter& chapter_;
  Line line_;
  Options options_;
  Shape& shape_ = options_.shape;
  std::vector<Value> written_;
  double patience_ = 600;  ///< in seconds
};

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv, const Chapter& chapter) {
  return Parser(chapter).parse(argc, argv);
}

}  // namespace flashbook
