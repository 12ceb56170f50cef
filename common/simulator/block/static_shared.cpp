#include "common/simulator/block/static_shared.h"

#if defined(__linux__) && !defined(__EMSCRIPTEN__)
#include <elf.h>
#include <link.h>

#include <fstream>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "common/simulator/language.h"
#include "common/simulator/source_lines.h"
#endif

#if defined(__EMSCRIPTEN__)
// The linker defines these symbols if the program has such arrays.
extern "C" {
extern unsigned char __start_cuda_shared[] __attribute__((weak));
extern unsigned char __stop_cuda_shared[] __attribute__((weak));
}
#endif

namespace flashbook::sim {

#if defined(__EMSCRIPTEN__)

// The program's arrays are contiguous here, and their names are unknown.
std::vector<std::span<unsigned char>> static_shared_arrays() {
  if (!static_shared_arrays_are_known()) return {};
  return {{__start_cuda_shared, __stop_cuda_shared}};
}
std::size_t static_shared_bytes_of(const void*) { return 0; }
Function function_of(std::uintptr_t) { return {}; }
bool static_shared_arrays_are_known() { return __start_cuda_shared != nullptr; }
std::span<unsigned char> own_thread_local_memory() { return {}; }

#elif defined(__linux__)

namespace {

/// An array's offset in the thread-local memory of each OS thread.
struct Range {
  std::size_t offset, bytes;
};

/// The information needed from the symbol table.
struct Symbols {
  std::vector<Range> shared;
  std::map<std::uintptr_t, std::size_t> of_kernels;  ///< bytes of each function's arrays, by its address
  std::map<std::uintptr_t, std::size_t> functions;   ///< size in bytes of each function, by its address
  std::size_t thread_idx = 0;  ///< offset of threadIdx, to check that the table was read correctly
};

/// Returns `count` objects of a file; none if the file is too short.
template <typename T>
std::vector<T> read(std::ifstream& file, std::size_t offset, std::size_t count) {
  std::vector<T> objects(count);
  file.seekg(std::streamoff(offset));
  if (!file.read(reinterpret_cast<char*>(objects.data()), std::streamsize(count * sizeof(T)))) return {};
  return objects;
}

/// Returns whether a variable's symbol has the tag of `__shared__` variables. (A name that begins with _ZGV
/// is the guard of a variable.)
bool is_shared_array(std::string_view symbol) {
  return symbol.starts_with("_Z") && !symbol.starts_with("_ZGV") &&
         symbol.find("B46use_dynamic_shared_T_in_place_of_extern_shared") != symbol.npos;
}

/// An array's symbol and size.
using Array = std::pair<std::string_view, std::size_t>;

/// Sums array sizes by function: a variable of function _Z<name> has the symbol _ZZ<name>E<variable>.
void count_by_function(const std::vector<ElfW(Sym)>& table, const std::vector<char>& names,
                       const std::vector<Array>& arrays, std::map<std::uintptr_t, std::size_t>& bytes) {
  for (const auto& symbol : table) {
    if ((symbol.st_info & 0xf) != STT_FUNC || symbol.st_name >= names.size()) continue;
    const std::string_view name = names.data() + symbol.st_name;
    if (!name.starts_with("_Z")) continue;
    const std::string_view encoded = name.substr(2);
    std::size_t sum = 0;
    for (const auto& [array, size] : arrays)
      if (array.starts_with("_ZZ") && array.substr(3).starts_with(encoded) &&
          array.substr(3 + encoded.size()).starts_with("E"))
        sum += size;
    if (sum > 0) bytes[symbol.st_value] = sum;
  }
}

Symbols read_symbols() {
  Symbols symbols;
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const auto header = read<ElfW(Ehdr)>(file, 0, 1);
  if (header.empty()) return symbols;
  const auto sections = read<ElfW(Shdr)>(file, header[0].e_shoff, header[0].e_shnum);
  for (const auto& section : sections) {
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
    const auto& strings = sections[section.sh_link];
    const auto names = read<char>(file, strings.sh_offset, strings.sh_size);
    const auto table = read<ElfW(Sym)>(file, section.sh_offset, section.sh_size / sizeof(ElfW(Sym)));
    std::vector<Array> arrays;
    for (const auto& symbol : table) {
      // The type is in the low four bits, in both ELF32 and ELF64.
      if ((symbol.st_info & 0xf) == STT_FUNC) symbols.functions[symbol.st_value] = symbol.st_size;
      if ((symbol.st_info & 0xf) != STT_TLS || symbol.st_name >= names.size()) continue;
      const std::string_view name = names.data() + symbol.st_name;
      if (name == "threadIdx") symbols.thread_idx = symbol.st_value;
      if (is_shared_array(name)) {
        symbols.shared.push_back({symbol.st_value, symbol.st_size});
        arrays.emplace_back(name, symbol.st_size);
      }
    }
    if (!arrays.empty()) count_by_function(table, names, arrays, symbols.of_kernels);
  }
  return symbols;
}

const Symbols& symbols() {
  static const Symbols symbols = read_symbols();
  return symbols;
}

}  // namespace

std::span<unsigned char> own_thread_local_memory() {
  std::span<unsigned char> memory;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        for (int i = 0; i < info->dlpi_phnum; ++i)
          if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data)
            *static_cast<std::span<unsigned char>*>(result) = {
                static_cast<unsigned char*>(info->dlpi_tls_data), info->dlpi_phdr[i].p_memsz};
        return 1;  // the program is the first object
      },
      &memory);
  return memory;
}

std::vector<std::span<unsigned char>> static_shared_arrays() {
  std::vector<std::span<unsigned char>> arrays;
  if (!static_shared_arrays_are_known()) return arrays;
  unsigned char* memory = own_thread_local_memory().data();
  for (const Range& range : symbols().shared) arrays.emplace_back(memory + range.offset, range.bytes);
  return arrays;
}

std::size_t static_shared_bytes_of(const void* kernel) {
  const auto found = symbols().of_kernels.find(offset_in_program(kernel));
  return found == symbols().of_kernels.end() ? 0 : found->second;
}

Function function_of(std::uintptr_t offset) {
  const auto next = symbols().functions.upper_bound(offset);
  if (next == symbols().functions.begin()) return {};
  const auto& [begin, bytes] = *std::prev(next);
  return offset - begin < bytes ? Function{begin, bytes} : Function{};
}

bool static_shared_arrays_are_known() {
  unsigned char* memory = own_thread_local_memory().data();
  return memory && memory + symbols().thread_idx == reinterpret_cast<unsigned char*>(&threadIdx);
}

#else

std::vector<std::span<unsigned char>> static_shared_arrays() { return {}; }
std::size_t static_shared_bytes_of(const void*) { return 0; }
Function function_of(std::uintptr_t) { return {}; }
bool static_shared_arrays_are_known() { return false; }
std::span<unsigned char> own_thread_local_memory() { return {}; }

#endif

}  // namespace flashbook::sim
