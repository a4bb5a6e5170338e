// ldmatrix, stmatrix, movmatrix: 8×8 matrices of 16 bits, of which lane l holds the elements
// (l / 4, 2·(l % 4)) and the next in a register, and lane 8·j + r gives the address of row r of
// matrix j.
#include <fmt/format.h>

#include <algorithm>

#include "tests/conformance/table.h"

namespace kiln::conformance {
namespace {

constexpr size_t kLanes = 32;

std::string list(size_t first, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += fmt::format("{}${}", i ? ", " : "", first + i);
  return text;
}

const char* const kRows =
    ".shared .align 16 .b8 rows[512]; mov.u32 %r1, rows; mad.lo.u32 %r1, %r0, 16, %r1;";

void loads(Table& table, size_t count, bool transposed) {
  std::string load =
      fmt::format("ldmatrix.sync.aligned.m8n8.x{}{}.shared.b16", count, transposed ? ".trans" : "");
  table.add(Row{.text = fmt::format("{{ {} st.shared.v2.b64 [%r1], {{{}}}; bar.sync 0;"
                                    "{} {{{}}}, [%r1]; }}",
                                    kRows, list(count, 2), load, list(0, count)),
                .results = std::vector<std::string>(count, "b32"),
                .operands = {"b64", "b64"},
                .threads = kLanes,
                .name = load},
            [=](const Operands& in, size_t lane) {
              auto element = [&](size_t matrix, size_t row, size_t column) {
                if (transposed) std::swap(row, column);
                return in(8 * matrix + row, column / 4) >> (16 * (column % 4)) & 0xffff;
              };
              std::vector<uint64_t> result;
              for (size_t j = 0; j < count; ++j)
                result.push_back(element(j, lane / 4, 2 * (lane % 4)) |
                                 element(j, lane / 4, 2 * (lane % 4) + 1) << 16);
              return result;
            });
}

void stores(Table& table, size_t count, bool transposed) {
  std::string store =
      fmt::format("stmatrix.sync.aligned.m8n8.x{}{}.shared.b16", count, transposed ? ".trans" : "");
  table.add(Row{.text = fmt::format("{{ {} mov.u64 %d2, 0; st.shared.v2.b64 [%r1], {{%d2, %d2}};"
                                    "bar.sync 0; {} [%r1], {{{}}}; bar.sync 0;"
                                    "ld.shared.v2.b64 {{$0, $1}}, [%r1]; }}",
                                    kRows, store, list(2, count)),
                .results = {"b64", "b64"},
                .operands = std::vector<std::string>(count, "b32"),
                .target = 90,
                .threads = kLanes,
                .name = store},
            [=](const Operands& in, size_t lane) {
              size_t matrix = lane / 8;
              std::vector<uint64_t> result = {0, 0};
              for (size_t i = 0; i < 8 && matrix < count; ++i) {
                size_t row = lane % 8, column = i;
                if (transposed) std::swap(row, column);
                uint64_t element = in(4 * row + column / 2, matrix) >> (16 * (column % 2)) & 0xffff;
                result[i / 4] |= element << (16 * (i % 4));
              }
              return result;
            });
}

}  // namespace

void add_matrix(Table& table) {
  for (size_t count : {size_t{1}, size_t{2}, size_t{4}})
    for (bool transposed : {false, true}) {
      loads(table, count, transposed);
      stores(table, count, transposed);
    }
  table.add(Row{.text = "movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;",
                .results = {"b32"},
                .operands = {"b32"},
                .threads = kLanes},
            [](const Operands& in, size_t lane) {
              auto element = [&](size_t row, size_t column) {
                return in(4 * row + column / 2, 0) >> (16 * (column % 2)) & 0xffff;
              };
              size_t row = lane / 4, column = 2 * (lane % 4);
              return std::vector<uint64_t>{element(column, row) | element(column + 1, row) << 16};
            });
}

}  // namespace kiln::conformance
