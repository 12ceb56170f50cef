#include "common/attention/npy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/input_error.h"

namespace flashbook {
namespace {

namespace fs = std::filesystem;

const fs::path kFiles = fs::path(FLASHBOOK_SOURCE_DIR) / "tests/attention/npy";

std::string size_bytes(std::size_t size, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += char(size >> (8 * i));
  return bytes;
}

/// Writes a .npy file with any header and any values.
std::string file_with(const std::string& header, const std::string& values) {
  return "\x93NUMPY" + std::string("\x01\x00", 2) + size_bytes(header.size(), 2) + header + values;
}

std::string header_of(const std::string& descr, const std::string& shape,
                      const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

NpyArray parse(const std::string& bytes) { return parse_npy(std::as_bytes(std::span(bytes)), "q.npy"); }

std::string complaint(const std::string& bytes) {
  return testing::input_error_of([&] { parse(bytes); });
}

const std::string kOne("\x00\x00\x80\x3f", 4);  // 1.0f
const std::string kGood = file_with(header_of("<f4", "(2, 1)"), kOne + kOne);
constexpr const char* kHeaderComplaint = "q.npy has a header that NumPy does not write: save it with np.save";
constexpr const char* kShorter = "q.npy is shorter than its header says: save it again";
constexpr const char* kLonger = "q.npy is longer than its header says: save it again";

/// A temporary folder, removed afterwards.
struct Npy : ::testing::Test {
  fs::path folder;

  void SetUp() override {
    std::string name = ::testing::TempDir() + "/npy_test.XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
  }
  void TearDown() override { fs::remove_all(folder); }

  void write(const std::string& name, std::span<const int64_t> shape, std::span<const float> values) {
    std::ofstream(folder / name, std::ios::binary) << npy_bytes(shape, values);
  }
};

TEST_F(Npy, ReadsWhatItWrites) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{}, {1}, {24}, {4, 6}, {2, 3, 4}, {1, 2, 3, 4}, {2, 1, 3, 1, 4}}) {
    std::vector<float> values;
    int64_t count = 1;
    for (int64_t extent : shape) count *= extent;
    for (int64_t i = 0; i < count; ++i) values.push_back(float(i) / 3 - 2);
    write("a.npy", shape, values);
    const NpyArray array = read_npy(folder / "a.npy");
    EXPECT_EQ(array.dtype, DType::f32);
    EXPECT_EQ(array.shape, shape);
    EXPECT_EQ(array.values, values);
    EXPECT_EQ((fs::file_size(folder / "a.npy") - values.size() * 4) % 64, 0u) << "NumPy aligns the values";
  }
}

TEST_F(Npy, WritesWhatNumPyWrites) {
  write("a.npy", std::vector<int64_t>{2, 3}, std::vector<float>{0, 1, 2, 3, 4, 5});
  std::ifstream stream(folder / "a.npy", std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(stream), {});
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_EQ(bytes.substr(10, 61), "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, ), }");
}

TEST(NpyFromNumPy, EveryVersionAndType) {
  const std::vector<float> values = {0, 1, 2, 3, 4, 5};
  for (const char* name : {"numpy_f4.npy", "numpy_f2.npy", "numpy_version_2.npy", "numpy_version_3.npy"}) {
    const NpyArray array = read_npy(kFiles / name);
    EXPECT_EQ(array.dtype, std::string(name) == "numpy_f2.npy" ? DType::f16 : DType::f32) << name;
    EXPECT_EQ(array.shape, (std::vector<int64_t>{2, 3})) << name;
    EXPECT_EQ(array.values, values) << name;
  }
}

TEST(NpyFromNumPy, RefusesOtherTypesAndOrders) {
  const auto complain = [](const char* name) {
    const std::string message = testing::input_error_of([&] { read_npy(kFiles / name); });
    EXPECT_TRUE(message.starts_with((kFiles / name).string())) << message;
    return message.substr(std::min(message.size(), (kFiles / name).string().size()));
  };
  EXPECT_EQ(complain("numpy_f8.npy"), " holds elements of type '<f8': save it with .astype(np.float32)");
  EXPECT_EQ(complain("numpy_big_endian.npy"), " is big-endian: save it with .astype('<f4')");
  EXPECT_EQ(complain("numpy_fortran.npy"), " is in Fortran order: save it with np.ascontiguousarray");
  EXPECT_EQ(complain("numpy_empty.npy"), " has no elements: give every dimension at least 1");
  EXPECT_EQ(complain("numpy_records.npy"),
            " holds records, not numbers: save one field of it with .astype(np.float32)");
}

TEST(NpyHeader, TakesAnyOrderQuotesAndSpaces) {
  for (const char* header :
       {"{'shape': (2, 1), 'descr': '<f4', 'fortran_order': False}",
        "{\"fortran_order\":False,\"shape\":(2,1),\"descr\":\"<f4\"}",
        " {  'descr' :'<f4' ,\t'fortran_order': False, 'shape':\n( 2 , 1 , ) , } \n\n"}) {
    EXPECT_EQ(complaint(file_with(header, kOne + kOne)), "") << header;
    EXPECT_EQ(parse(file_with(header, kOne + kOne)).shape, (std::vector<int64_t>{2, 1})) << header;
  }
}

TEST(NpyHeader, RefusesWhatIsNoHeader) {
  for (const char* header : {
           "",
           "{",
           "{}",
           "{'descr': '<f4', 'fortran_order': False}",
           "{'descr': '<f4', 'shape': (2, 1)}",
           "{'fortran_order': False, 'shape': (2, 1)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1)",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1)} more",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), 'extra': 1}",
           "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 1)}",
           "{'descr': '<f4' 'fortran_order': False, 'shape': (2, 1)}",
           "{'descr': '<f4, 'fortran_order': False, 'shape': (2, 1)}",
           "{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (2, 1)}",
           "{'descr': 4, 'fortran_order': False, 'shape': (2, 1)}",
           "{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 1)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': 2}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': [2, 1]}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2 1)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, -1)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2.0, 1)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,)}",
       })
    EXPECT_EQ(complaint(file_with(header, kOne + kOne)), kHeaderComplaint) << header;
}

TEST(NpySizes, DoNotOverflow) {
  for (const char* shape :
       {"(9223372036854775807,)", "(9223372036854775807, 9223372036854775807)", "(4294967296, 4294967296)",
        "(4611686018427387905, 4)", "(2, 4611686018427387905)"})
    EXPECT_EQ(complaint(file_with(header_of("<f4", shape), kOne + kOne)), kShorter) << shape;
  for (const char* shape :
       {"(0,)", "(0, 9223372036854775807, 9223372036854775807)", "(9223372036854775807, 0)"})
    EXPECT_EQ(complaint(file_with(header_of("<f4", shape), kOne)),
              "q.npy has no elements: give every dimension at least 1")
        << shape;
}

TEST_F(Npy, RefusesFilesLargerThanMemory) {
  const fs::path file = folder / "huge.npy";
  std::ofstream(file) << kGood;
  std::error_code error;
  fs::resize_file(file, std::uintmax_t(1) << 42, error);  // sparse: occupies no space
  if (error) GTEST_SKIP() << "this file system has no files of 4 TB";
  EXPECT_EQ(testing::input_error_of([&] { read_npy(file); }),
            file.string() + " is too large for this machine's memory: give a smaller tensor");
}

TEST(NpyFiles, AreArraysOrErrors) {
  int arrays = 0, errors = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(kFiles)) {
    try {
      const NpyArray array = read_npy(entry.path());
      std::size_t count = 1;
      for (int64_t extent : array.shape) count *= std::size_t(extent);
      EXPECT_EQ(array.values.size(), count) << entry.path();
      ++arrays;
    } catch (const InputError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with(entry.path().string())) << error.what();
      ++errors;
    }
  }
  EXPECT_GT(arrays, 5);
  EXPECT_GT(errors, 5);
}

}  // namespace
}  // namespace flashbook
