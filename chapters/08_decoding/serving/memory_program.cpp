/// \file
/// `./flashbook memory`: the size of a model's cache.
#include <cstdio>
#include <iostream>

#include "chapters/08_decoding/serving/memory.h"
#include "common/app/exit_code.h"
#include "common/app/line.h"
#include "common/app/table.h"
#include "common/attention/error.h"

namespace flashbook::decoding {
namespace {

constexpr const char* kName = "memory";

/// Formats 131072 as "128 KiB": with the largest unit that gives a whole number.
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

int run(int argc, char** argv) {
  Model model = {.name = "this model", .layers = 0, .heads = 0, .kv_heads = 0, .head_dim = 0};
  const Model* known = nullptr;
  DType dtype = DType::bf16;
  int seqlen = 8192, batch = 1;
  Line line("Memory taken by a cache of keys and values. Without a model: a table of known ones", kName);
  line.value("--model", "NAME", "One of the table's", [&](const Value& given) {
    known = model_named(given.text);
    if (!known)
      throw InputError("--model is '" + given.text +
                       "', which is not in the table: ./flashbook memory prints it");
  });
  line.count("--layers", "Layers of a model that is not in the table", model.layers);
  line.count("--kv-heads", "Its key heads", model.kv_heads);
  line.count("--head-dim", "Elements of a key", model.head_dim);
  line.count("--heads", "Its query heads; by default as many as key heads", model.heads);
  line.value("--dtype", "TYPE", "f32, f16, bf16 (default) or e4m3", [&](const Value& given) {
    dtype = given.one_of<DType>(
        {{"f32", DType::f32}, {"f16", DType::f16}, {"bf16", DType::bf16}, {"e4m3", DType::e4m3}});
  });
  line.count("--seqlen", "Tokens of a sequence, 8k by default", seqlen);
  line.count("--batch", "Sequences, 1 by default", batch);
  if (!line.read(argc, argv, std::cout)) return kRight;
  const bool is_described = model.layers + model.heads + model.kv_heads + model.head_dim > 0;
  if (known && is_described)
    throw InputError("--model says what --layers, --heads, --kv-heads and --head-dim are: leave them out");
  if (is_described && (model.layers == 0 || model.kv_heads == 0 || model.head_dim == 0))
    throw InputError("--layers, --kv-heads and --head-dim go together: give all three, or --model");
  if (model.heads == 0) model.heads = model.kv_heads;
  if (is_described && model.heads % model.kv_heads != 0)
    throw InputError("--heads is " + std::to_string(model.heads) + ": give a multiple of --kv-heads, " +
                     std::to_string(model.kv_heads));
  if (known || is_described)
    print(known ? *known : model, dtype, seqlen, batch);
  else
    print_models(dtype, seqlen, batch);
  return kRight;
}

}  // namespace
}  // namespace flashbook::decoding

int main(int argc, char** argv) {
  using namespace flashbook::decoding;
  return flashbook::exit_code(kName, [&] { return run(argc, argv); });
}
