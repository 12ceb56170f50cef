#include "common/attention/npy.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <fstream>
#include <new>
#include <optional>
#include <string>
#include <system_error>

#include "common/attention/error.h"
#include "common/attention/tensors.h"
#include "common/numeric/arithmetic.h"

namespace flashbook {
namespace {

static_assert(std::endian::native == std::endian::little, "values are copied in the file's byte order");

constexpr std::string_view kMagic = "\x93NUMPY";

struct Header {
  std::string descr;  ///< NumPy's name for the element type: "<f4"
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

/// Reads the header: a Python dict such as {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }. Every
/// function consumes the text that it reads, and throws if it finds something else.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& name) : rest_(text), name_(name) {}

  Header parse() {
    std::optional<std::string> descr;
    std::optional<bool> fortran_order;
    std::optional<std::vector<int64_t>> shape;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr" && !descr) {
        if (accept('['))
          throw InputError(name_,
                           " holds records, not numbers: save one field of it with .astype(np.float32)");
        descr = string();
      } else if (key == "fortran_order" && !fortran_order) {
        fortran_order = boolean();
      } else if (key == "shape" && !shape) {
        shape = tuple();
      } else {
        fail();
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_spaces();
    if (!rest_.empty() || !descr || !fortran_order || !shape) fail();
    return {*descr, *fortran_order, *shape};
  }

 private:
  [[noreturn]] void fail() const {
    throw InputError(name_, " has a header that NumPy does not write: save it with np.save");
  }

  void skip_spaces() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size())); }

  bool accept(std::string_view token) {
    skip_spaces();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  bool accept(char token) { return accept(std::string_view(&token, 1)); }

  void expect(char token) {
    if (!accept(token)) fail();
  }

  /// Returns a string in either kind of quotes, without escapes.
  std::string string() {
    char quote = '\'';
    if (!accept(quote)) expect(quote = '"');
    const std::size_t length = rest_.find(quote);
    if (length == rest_.npos) fail();
    const std::string text(rest_.substr(0, length));
    if (text.find('\\') != text.npos) fail();
    rest_.remove_prefix(length + 1);
    return text;
  }

  bool boolean() {
    if (accept("True")) return true;
    if (accept("False")) return false;
    fail();
  }

  /// Returns a tuple: (), (3,) or (3, 4). Only a tuple of one element needs its comma.
  std::vector<int64_t> tuple() {
    std::vector<int64_t> numbers;
    expect('(');
    while (!accept(')')) {
      numbers.push_back(number());
      if (accept(',')) continue;
      if (numbers.size() == 1) fail();
      expect(')');
      break;
    }
    return numbers;
  }

  int64_t number() {
    skip_spaces();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || rest_.front() == '-') fail();
    rest_.remove_prefix(end - rest_.data());
    return value;
  }

  std::string_view rest_;  // the part that has not been read
  const std::string& name_;
};

/// Returns the type with this NumPy name. Throws for everything except little-endian float32 and float16.
DType element_type(const std::string& descr, const std::string& name) {
  if (descr == "<f4") return DType::f32;
  if (descr == "<f2") return DType::f16;
  if (descr == ">f4" || descr == ">f2")
    throw InputError(name, " is big-endian: save it with .astype('<", descr.substr(1), "')");
  // A message must be one line, whatever the file contains.
  std::string shown = descr.substr(0, 16);
  for (char& c : shown)
    if (c < ' ' || c > '~') c = '?';
  throw InputError(name, " holds elements of type '", shown, "': save it with .astype(np.float32)");
}

/// Throws unless `bytes` are an array in C order of this shape, with elements of `size` bytes.
void require_size(const Header& header, std::size_t size, std::size_t bytes, const std::string& name) {
  if (header.fortran_order) throw InputError(name, " is in Fortran order: save it with np.ascontiguousarray");
  const std::vector<int64_t>& shape = header.shape;
  if (std::ranges::count(shape, 0) > 0)
    throw InputError(name, " has no elements: give every dimension at least 1");
  const int64_t held = int64_t(bytes / size);
  int64_t count = 1;
  for (int64_t extent : shape) {
    // Divides instead of multiplying, since the product of the sizes in a header may overflow.
    if (extent > held / count) throw InputError(name, " is shorter than its header says: save it again");
    count *= extent;
  }
  if (count > held) throw InputError(name, " is shorter than its header says: save it again");
  if (bytes != std::size_t(count) * size)
    throw InputError(name, " is longer than its header says: save it again");
}

std::vector<std::byte> read_bytes(const std::filesystem::path& file) {
  const std::string name = file.string();
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status))
    throw InputError(name, " does not exist: give the name of a .npy file");
  if (!std::filesystem::is_regular_file(status))
    throw InputError(name, " is not a regular file: give the name of a .npy file");

  std::ifstream stream(file, std::ios::binary);
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  if (!stream || error) throw InputError(name, " cannot be read: allow it with chmod");
  // Checked in advance, since a system may overcommit its memory.
  if (size / sysconf(_SC_PAGESIZE) >= std::uintmax_t(sysconf(_SC_PHYS_PAGES)))
    throw InputError(name, " is too large for this machine's memory: give a smaller tensor");
  std::vector<std::byte> bytes(size);
  if (!stream.read(reinterpret_cast<char*>(bytes.data()), std::streamsize(size)))
    throw InputError(name, " became shorter while it was read: try again");
  return bytes;
}

std::string npy_header(std::span<const int64_t> shape) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
  for (int64_t extent : shape) header += std::to_string(extent) + ", ";
  header += "), }";
  // The values begin at a multiple of 64 bytes, so that NumPy can map the file.
  const std::size_t before = kMagic.size() + 2 + 2;
  header.resize(ceil_div(before + header.size() + 1, 64) * 64 - before - 1, ' ');
  header += '\n';
  return std::string(kMagic) + '\x01' + '\x00' + char(header.size() & 0xff) + char(header.size() >> 8) +
         header;
}

/// The header of a file, and the bytes of its elements.
struct Contents {
  Header header;
  std::span<const std::byte> data;
};

Contents parse_contents(std::span<const std::byte> bytes, const std::string& name) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic)) throw InputError(name, " is not a .npy file: save it with np.save");
  text.remove_prefix(kMagic.size());

  const auto require = [&](std::size_t size) {
    if (text.size() < size) throw InputError(name, " ends within its header: save it again");
  };
  const auto take = [&] {
    require(1);
    const auto byte = static_cast<unsigned char>(text.front());
    text.remove_prefix(1);
    return std::size_t(byte);
  };
  const std::size_t major = take(), minor = take();
  if (major < 1 || major > 3 || minor != 0)
    throw InputError(name, " has .npy version ", major, ".", minor, ", not 1.0 to 3.0: save it with np.save");
  std::size_t header_size = 0;
  for (int byte = 0; byte < (major == 1 ? 2 : 4); ++byte) header_size |= take() << (8 * byte);
  require(header_size);

  const Header header = HeaderParser(text.substr(0, header_size), name).parse();
  return {header, bytes.last(text.size() - header_size)};
}

/// Returns the result of `parse` for a file's bytes.
template <typename Parse>
auto read_file(const std::filesystem::path& file, const Parse& parse) {
  try {
    return parse(read_bytes(file), file.string());
  } catch (const std::bad_alloc&) {
    throw InputError(file.string(), " is too large for this machine's memory: give a smaller tensor");
  }
}

}  // namespace

NpyArray parse_npy(std::span<const std::byte> bytes, std::string_view file_name) {
  const std::string name(file_name);
  const auto [header, data] = parse_contents(bytes, name);
  const DType type = element_type(header.descr, name);
  require_size(header, size_of(type), data.size(), name);
  return {type, header.shape, decode(type, data)};
}

NpyArray read_npy(const std::filesystem::path& file) { return read_file(file, parse_npy); }

NpyMask parse_npy_mask(std::span<const std::byte> bytes, std::string_view file_name) {
  const std::string name(file_name);
  const auto [header, data] = parse_contents(bytes, name);
  const bool is_pairs = header.descr == "|b1";
  if (!is_pairs && header.descr != "<i4")
    throw InputError(name,
                     " holds neither bool nor int32: save pairs with .astype(bool), or FlashMask's "
                     "intervals with .astype(np.int32)");
  require_size(header, is_pairs ? 1 : sizeof(int), data.size(), name);
  NpyMask mask{header.shape, {}, {}};
  if (is_pairs) {
    mask.pairs.resize(data.size());
    std::memcpy(mask.pairs.data(), data.data(), data.size());
  } else {
    mask.intervals.resize(data.size() / sizeof(int));
    std::memcpy(mask.intervals.data(), data.data(), data.size());
  }
  return mask;
}

NpyMask read_npy_mask(const std::filesystem::path& file) { return read_file(file, parse_npy_mask); }

std::string npy_bytes(std::span<const int64_t> shape, std::span<const float> values) {
  return npy_header(shape).append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

std::string dims_text(const std::vector<int64_t>& dims) {
  std::string text = "[";
  for (int64_t dim : dims) text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
  return text + "]";
}

}  // namespace flashbook
