// What the functions on lines of tiles record.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>

#include "dsl/dsl.h"
#include "ir/walk.h"

namespace kiln {
namespace {

// The ops on tiles in a launch, "sort 0 4 2 dim=1": tiles are numbered as they are allocated.
std::vector<std::string> recorded(const std::function<void()>& body) {
  const Kernel kernel = trace("kernel", [&] {
    launch({1});
    body();
  });
  std::map<uint32_t, size_t> number;
  std::vector<std::string> lines;
  walk(kernel, kernel.body, [&](OpId id) {
    const Op& op = kernel.op(id);
    if (op.code == OpCode::Alloc) number.emplace(op.result.id, number.size());
    if (!info(op.code).attr("dim")) return;
    std::string line(info(op.code).name);
    for (Value operand : op.operands) line += fmt::format(" {}", number.at(operand.id));
    line += fmt::format(" dim={}", op.integer("dim"));
    if (info(op.code).attr("kind")) line += " " + op.word("kind");
    if (info(op.code).attr("reverse") && op.flag("reverse")) line += " reverse";
    lines.push_back(line);
  });
  return lines;
}

TEST_CASE("sort and topk", "[rows]") {
  CHECK(recorded([] {
          Tile keys = alloc_shared({8, 64}, F32), values = alloc_shared({8, 64}, F16);
          Tile sorted = alloc_fragment({8, 64}, F32), moved = alloc_fragment({8, 64}, F16);
          Tile positions = alloc_fragment({8, 64}, I32);
          sort(keys, sorted, positions);
          sort(keys, values, sorted, moved, 0);
        }) == std::vector<std::string>{"sort 0 4 2 dim=1", "sort 0 3 2 1 dim=0"});
  CHECK(recorded([] {
          Tile keys = alloc_shared({8, 64}, F32), values = alloc_shared({8, 64}, F16);
          Tile best = alloc_fragment({3, 64}, F32), at = alloc_fragment({3, 64}, I32);
          Tile score = alloc_fragment({8, 2}, F32), chosen = alloc_fragment({8, 2}, F16);
          topk(keys, best, at, -2);
          topk(keys, values, score, chosen);
        }) == std::vector<std::string>{"sort 0 3 2 dim=0", "sort 0 5 4 1 dim=1"});
}

TEST_CASE("cumsum, argmax and argmin", "[rows]") {
  CHECK(recorded([] {
          Tile x = alloc_shared({8, 64}, F32), sums = alloc_fragment({8, 64}, F32);
          Tile rows = alloc_fragment({8}, I32), columns = alloc_fragment({1, 64}, I32);
          cumsum(x, sums);
          cumsum(x, sums, 0, true);
          reduce_argmax(x, rows);
          reduce_argmin(x, columns, 0);
        }) == std::vector<std::string>{"cumsum 0 1 dim=1", "cumsum 0 1 dim=0 reverse",
                                       "arg_reduce 0 2 dim=1 max", "arg_reduce 0 3 dim=0 min"});
}

}  // namespace
}  // namespace kiln
