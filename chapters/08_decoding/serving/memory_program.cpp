/// \file
/// `./flashbook memory`: what a model's cache takes.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>

#include "chapters/08_decoding/serving/memory.h"
#include "common/app/exit_code.h"
#include "common/app/table.h"
#include "common/app/value.h"
#include "common/attention/error.h"

namespace flashbook::decoding {
namespace {

constexpr const char* kName = "memory";

struct Options {
  std::string model, layers, heads, kv_heads, head_dim, dtype = "bf16", seqlen = "8k", batch = "1", help;
};

Options parse(int argc, char** argv) {
  Options options;
  CLI::App app("What the cache of keys and values takes of memory. Without a model: a table of known ones",
               kName);
  const auto add = [&](const char* name, std::string& value, const char* what) {
    app.add_option(name, value, what)->type_name("N");
  };
  app.add_option("--model", options.model, "One of the table's")->type_name("NAME");
  add("--layers", options.layers, "Layers of a model that is not in the table");
  add("--kv-heads", options.kv_heads, "Its key heads");
  add("--head-dim", options.head_dim, "Elements of a key");
  add("--heads", options.heads, "Its query heads; by default as many as key heads");
  app.add_option("--dtype", options.dtype, "f32, f16, bf16 (default) or e4m3")->type_name("TYPE");
  add("--seqlen", options.seqlen, "Tokens of a sequence, 8k by default");
  add("--batch", options.batch, "Sequences, 1 by default");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    options.help = app.help();
  } catch (const CLI::ParseError& error) {
    throw InputError(one_line(error.what()) + " (--help lists the options)");
  }
  return options;
}

/// 131072 is "128 KiB": with a whole number before the unit where there is one.
std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 6; ++unit) bytes /= 1024;
  char text[40];
  std::snprintf(text, sizeof text, "%.4g %s", bytes, kUnits[unit]);
  return text;
}

std::string whole_text(double bytes) {
  char text[40];
  std::snprintf(text, sizeof text, "%.0f", bytes);
  return text;
}

void print_models(DType dtype, int seqlen, int batch) {
  Table table("lrrrrrrl",
              {"model", "layers", "heads", "key heads", "head_dim", "a token", "the batch", "source"});
  for (const Model& model : known_models()) {
    const MemoryUse use = memory_of(model, dtype, seqlen, batch);
    const bool latent = model.latent > 0;
    table.add({model.name, std::to_string(model.layers), std::to_string(model.heads),
               latent ? "latent" : std::to_string(model.kv_heads),
               std::to_string(latent ? model.latent : model.head_dim), bytes_text(use.token),
               bytes_text(use.batch), model.source});
  }
  std::cout << batch << (batch == 1 ? " sequence of " : " sequences of ") << seqlen << " tokens, "
            << name_of(dtype) << "\n\n";
  table.print(std::cout);
  std::cout << "\n--model NAME says more; --layers, --kv-heads and --head-dim describe another one.\n";
}

void print(const Model& model, DType dtype, int seqlen, int batch) {
  const MemoryUse use = memory_of(model, dtype, seqlen, batch);
  std::cout << model.name << ": " << model.layers << " layers, " << model.heads << " query heads, ";
  if (model.latent > 0)
    std::cout << "one latent of " << model.latent << " elements a token and layer";
  else
    std::cout << model.kv_heads << " key heads of " << model.head_dim;
  std::cout << ", " << name_of(dtype) << "\n\n";

  Table table("lrr", {"keys and values", "bytes", ""});
  const auto add = [&](const std::string& what, double bytes) {
    table.add({what, whole_text(bytes), bytes_text(bytes)});
  };
  add("of a token, in one layer", use.token_and_layer);
  add("of a token, in all layers", use.token);
  add("of a sequence of " + std::to_string(seqlen), use.sequence);
  add("of the batch of " + std::to_string(batch), use.batch);
  if (model.latent == 0 && model.kv_heads < model.heads) {
    Model every = model;
    every.kv_heads = model.heads;
    add("if each query head had its own", memory_of(every, dtype, seqlen, batch).batch);
  }
  add("beside it, S and P of standard attention, one layer", use.standard);
  table.print(std::cout);
}

Model described(const Options& options) {
  if (options.layers.empty() || options.kv_heads.empty() || options.head_dim.empty())
    throw InputError("--layers, --kv-heads and --head-dim go together: give all three, or --model");
  Model model = {.name = "this model",
                 .layers = Value{"--layers", options.layers}.count(),
                 .heads = 0,
                 .kv_heads = Value{"--kv-heads", options.kv_heads}.count(),
                 .head_dim = Value{"--head-dim", options.head_dim}.count()};
  model.heads = options.heads.empty() ? model.kv_heads : Value{"--heads", options.heads}.count();
  if (model.heads % model.kv_heads != 0)
    throw InputError("--heads is " + options.heads + ": give a multiple of --kv-heads, " + options.kv_heads);
  return model;
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (!options.help.empty()) {
    std::cout << options.help;
    return kRight;
  }
  const std::optional<DType> dtype = dtype_named(options.dtype);
  if (!dtype) throw InputError("--dtype is '" + options.dtype + "': give f32, f16, bf16 or e4m3");
  const int seqlen = Value{"--seqlen", options.seqlen}.count(),
            batch = Value{"--batch", options.batch}.count();
  const bool is_described = !(options.layers + options.heads + options.kv_heads + options.head_dim).empty();
  if (options.model.empty() && !is_described) {
    print_models(*dtype, seqlen, batch);
  } else if (options.model.empty()) {
    print(described(options), *dtype, seqlen, batch);
  } else {
    if (is_described)
      throw InputError("--model says what --layers, --heads, --kv-heads and --head-dim are: leave them out");
    const Model* model = model_named(options.model);
    if (!model)
      throw InputError("--model is '" + options.model +
                       "', which is not in the table: ./flashbook memory prints it");
    print(*model, *dtype, seqlen, batch);
  }
  return kRight;
}

}  // namespace
}  // namespace flashbook::decoding

int main(int argc, char** argv) {
  return flashbook::exit_code(flashbook::decoding::kName,
                              [&] { return flashbook::decoding::run(argc, argv); });
}
