// The .npy reader on good and bad bytes. tests/tools/cli_test.py does the same with NumPy's files.
#include "tools/npy/npy.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <random>

#include "ir/error.h"

using namespace kiln;
using Catch::Matchers::Contains;
using Values = std::vector<double>;

namespace {

std::string file_of(const std::string& dict, const std::string& data, int version = 1) {
  std::string padded = dict + "\n";
  std::string length = {static_cast<char>(padded.size() & 255),
                        static_cast<char>(padded.size() >> 8)};
  if (version > 1) length += std::string(2, '\0');
  return std::string("\x93NUMPY") + static_cast<char>(version) + '\0' + length + padded + data;
}
std::string dict_of(const std::string& descr, const std::string& order, const std::string& shape) {
  return fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}", descr, order, shape);
}
const std::string kBytes("\0\1\2\3\4\5", 6);

void expect(const std::string& bytes, const char* sentence) {
  INFO(sentence);
  CHECK_THROWS_AS(parse_npy(bytes, "x.npy"), UserError);
  CHECK_THROWS_WITH(parse_npy(bytes, "x.npy"), Contains("x.npy") && Contains(sentence));
}

}  // namespace

TEST_CASE("what is written is read back", "[npy]") {
  for (DType dtype : {F16, BF16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64})
    for (Shape shape : {Shape{}, Shape{3}, Shape{2, 3}, Shape{0, 2}, Shape{1, 2, 3, 1}}) {
      Array array(dtype, shape);
      for (int64_t i = 0; i < array.size(); ++i) array.set(i, static_cast<double>(i + 1));
      std::string bytes = npy_bytes(array);
      CHECK((bytes.size() - array.bytes()) % 64 == 0);
      Array again = parse_npy(bytes, "x.npy");
      CHECK(again.dtype() == dtype);
      CHECK(again.shape() == shape);
      CHECK(again.values() == array.values());
    }
}

TEST_CASE("orders, ends and versions", "[npy]") {
  Values row_major = {0, 1, 2, 3, 4, 5};
  CHECK(parse_npy(file_of(dict_of("|u1", "False", "(2, 3)"), kBytes), "x").values() == row_major);
  CHECK(parse_npy(file_of(dict_of("|u1", "True", "(2, 3)"), kBytes), "x").values() ==
        Values{0, 2, 4, 1, 3, 5});
  CHECK(parse_npy(file_of(dict_of(">u2", "False", "(3,)"), kBytes), "x").values() ==
        Values{1, 0x203, 0x405});
  CHECK(parse_npy(file_of(dict_of("<u2", "False", "(3,)"), kBytes), "x").values() ==
        Values{0x100, 0x302, 0x504});
  CHECK(parse_npy(file_of(dict_of(">u2", "True", "(1, 3)"), kBytes), "x").shape() == Shape{1, 3});
  for (int version : {2, 3})
    CHECK(parse_npy(file_of(dict_of("|u1", "False", "(6,)"), kBytes, version), "x").values() ==
          row_major);
  CHECK(parse_npy(file_of(dict_of("|b1", "False", "(6,)"), kBytes), "x").values() ==
        Values{0, 1, 1, 1, 1, 1});
  CHECK(
      parse_npy(file_of(dict_of("<V2", "False", "(3,)"), std::string("\0\0\x80\x3f\0\xc0", 6)), "x")
          .values() == Values{0, 1, -2});
  // Keys in any order, any quotes, no trailing comma.
  CHECK(parse_npy(file_of("{\"shape\":(6),'fortran_order' : False,'descr':\"|u1\"}", kBytes), "x")
            .values() == row_major);
}

TEST_CASE("bad files are sentences", "[npy]") {
  std::string good = file_of(dict_of("|u1", "False", "(2, 3)"), kBytes);
  expect("", "an empty file");
  expect("hello", "something else");
  expect(std::string("PK\x03\x04") + "rest", "zip archive");
  for (size_t length = 6; length < good.size() - 6; ++length)
    expect(good.substr(0, length), "truncated in the .npy header");
  expect(good.substr(0, good.size() - 1),
         "truncated: shape [2, 3] of u8 needs 6 bytes of data, the file has 5");
  expect(good + "x", "trailing bytes: shape [2, 3] of u8 needs 6 bytes of data, the file has 7");
  std::string version = good;
  version[6] = 4;
  expect(version, ".npy format 4.0 is not known");
  auto with = [](const char* descr, const char* order, const char* shape) {
    return file_of(dict_of(descr, order, shape), kBytes);
  };
  expect(with("<c8", "False", "(1,)"), "dtype '<c8' is not supported");
  expect(with("|O", "False", "(1,)"), "pickled");
  expect(with("<f16", "False", "(1,)"), "dtype '<f16' is not supported");
  expect(with("", "False", "(1,)"), "dtype '' is not supported");
  expect(file_of("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (1,)}", kBytes),
         "structured");
  expect(with("|u1", "0", "(6,)"), "expected True or False");
  expect(with("|u1", "False", "(-6,)"), "negative extent");
  expect(with("|u1", "False", "(6.0,)"), "expected ','");
  expect(with("|u1", "False", "6"), "expected '('");
  expect(with("|u1", "False", "(99999999999999999999,)"), "does not fit in 64 bits");
  expect(with("<f8", "False", "(4611686018427387904, 4)"), "too large");
  expect(with("<f8", "False", "(0, 4611686018427387904)"), "too large");
  expect(with("<f8", "False", "(1099511627776,)"), "truncated");
  expect(file_of("{'descr': '|u1', 'fortran_order': False}", kBytes), "no key 'shape'");
  expect(file_of("{'descr': '|u1', 'descr': '|u1'}", kBytes), "key 'descr' twice");
  expect(file_of("{'evil': 1}", kBytes), "unknown key 'evil'");
  expect(file_of("{'descr': '|u1", kBytes), "closing quote");
  expect(file_of("[]", kBytes), "expected '{'");
  expect(file_of(dict_of("|u1", "False", "(6,)") + "more", kBytes), "after the dict");
}

TEST_CASE("files on disk", "[npy]") {
  auto path = std::filesystem::temp_directory_path() /
              fmt::format("kiln_npy_{}.npy", std::random_device()());
  Array array(F32, {2, 2}, Values{1, 2, 3, 4});
  write_npy(path, array);
  CHECK(read_npy(path).values() == array.values());
  std::filesystem::remove(path);
  CHECK_THROWS_WITH(read_npy(path), Contains("cannot open"));
  CHECK_THROWS_WITH(read_npy(std::filesystem::temp_directory_path()), Contains("cannot read"));
  CHECK_THROWS_WITH(write_npy(path / "no" / "folder.npy", array), Contains("cannot write"));
}
