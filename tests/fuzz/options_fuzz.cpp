/// \file
/// Feeds arguments to the command line, one per line of the input. The result must be options, the help or an
/// error with an exit code. The preset `fuzz` builds it; CMakeLists.txt here shows how to run it.
#include <cstdint>
#include <string>
#include <vector>

#include "common/app/options.h"
#include "common/attention/error.h"

namespace {

constexpr flashbook::Features kAll = flashbook::Features::every();
constexpr flashbook::Step kSteps[] = {{.slug = "one",
                                       .name = "one",
                                       .idea = "One.",
                                       .operation = flashbook::Operation::forward,
                                       .accepts = kAll,
                                       .run = nullptr},
                                      {.slug = "two",
                                       .name = "two",
                                       .idea = "Two.",
                                       .operation = flashbook::Operation::backward,
                                       .accepts = kAll,
                                       .run = nullptr}};
constexpr flashbook::DType kTypes[] = {flashbook::DType::f32, flashbook::DType::f16};

flashbook::Chapter some_chapter() {
  flashbook::Chapter chapter{};
  chapter.number = 1;
  chapter.name = "01_some_chapter";
  chapter.title = "Some chapter";
  chapter.steps = kSteps;
  chapter.dtypes = kTypes;
  return chapter;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  static const flashbook::Chapter chapter = some_chapter();
  std::vector<std::string> words{"program", ""};
  for (std::size_t i = 0; i < size; ++i)
    if (data[i] == '\n')
      words.emplace_back();
    else if (data[i] != 0)  // a zero byte would end an argument
      words.back().push_back(char(data[i]));
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  try {
    flashbook::parse_command_line(int(argv.size()), argv.data(), chapter);
  } catch (const flashbook::InputError& error) {
    if (std::string(error.what()).find('\n') != std::string::npos)
      __builtin_trap();  // errors must be one line
  } catch (const flashbook::device::HardwareMissing&) {
  }
  return 0;
}
