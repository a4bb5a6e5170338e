// What lanes of a warp exchange.
#include <fmt/format.h>

#include <algorithm>

#include "tests/conformance/table.h"

namespace kiln::conformance {
namespace {

constexpr size_t kLanes = 32;

// The manual's pseudocode of shfl; the lane it reads, or none if the lane keeps its own.
std::optional<unsigned> source(std::string_view mode, unsigned lane, unsigned b, unsigned c) {
  unsigned segments = c >> 8 & 31, value = b & 31;
  int most = static_cast<int>((lane & segments) | (c & 31 & ~segments));
  int from = static_cast<int>(lane), offset = static_cast<int>(value);
  if (mode == "up") from -= offset;
  if (mode == "down") from += offset;
  if (mode == "bfly") from ^= offset;
  if (mode == "idx") from = static_cast<int>((lane & segments) | (value & ~segments));
  bool holds = mode == "up" ? from >= most : from <= most;
  return holds ? std::optional(static_cast<unsigned>(from)) : std::nullopt;
}

void shuffles(Table& table) {
  for (std::string mode : {"up", "down", "bfly", "idx"})
    for (unsigned segment : {32u, 16u, 8u, 2u}) {
      unsigned c = (32 - segment) << 8 | (mode == "up" ? 0 : 31);
      std::string text = fmt::format("shfl.sync.{}.b32 $0|%p1, $2, $3, {:#x}, -1;", mode, c);
      table.add(Row{.text = text + " selp.u32 $1, 1, 0, %p1;",
                    .results = {"b32", "u32"},
                    .operands = {"b32", "u32"},
                    .threads = kLanes,
                    .name = text,
                    .value =
                        [=](size_t, size_t i, std::mt19937_64& random) {
                          return i == 1 ? random() % 32 : random() & 0xffffffff;
                        }},
                [=](const Operands& in, size_t lane) {
                  auto from = source(mode, static_cast<unsigned>(lane),
                                     static_cast<unsigned>(in(lane, 1)), c);
                  return std::vector<uint64_t>{in(from.value_or(static_cast<unsigned>(lane)), 0),
                                               from.has_value()};
                });
    }
}

using Predicates = std::vector<bool>;

void votes(Table& table) {
  struct Vote {
    const char* text;
    uint64_t (*compute)(const Predicates&);
  };
  const char* select = " selp.u32 $0, 1, 0, %p2;";
  auto all = [](const Predicates& p) {
    return uint64_t{std::all_of(p.begin(), p.end(), [](bool x) { return x; })};
  };
  auto any = [](const Predicates& p) {
    return uint64_t{std::any_of(p.begin(), p.end(), [](bool x) { return x; })};
  };
  auto uniform = [](const Predicates& p) {
    return uint64_t{std::all_of(p.begin(), p.end(), [&](bool x) { return x == p[0]; })};
  };
  auto ballot = [](const Predicates& p) {
    uint64_t mask = 0;
    for (size_t i = 0; i < p.size(); ++i) mask |= uint64_t{p[i]} << i;
    return mask;
  };
  const Vote kVotes[] = {{"vote.sync.all.pred %p2, %p1, -1;", all},
                         {"vote.sync.any.pred %p2, %p1, -1;", any},
                         {"vote.sync.uni.pred %p2, %p1, -1;", uniform},
                         {"vote.sync.ballot.b32 $0, %p1, -1;", ballot}};
  for (const Vote& vote : kVotes)
    for (unsigned limit : {0u, 10u, 16u, 32u}) {
      bool mask = std::string_view(vote.text).find("ballot") != std::string_view::npos;
      table.add(Row{.text = fmt::format("setp.lt.u32 %p1, $1, {}; {}{}", limit, vote.text,
                                        mask ? "" : select),
                    .results = {"u32"},
                    .operands = {"u32"},
                    .threads = kLanes,
                    .value = [](size_t, size_t, std::mt19937_64& random) { return random() % 32; }},
                [=](const Operands& in, size_t) {
                  Predicates p;
                  for (uint64_t x : in.all) p.push_back(x < limit);
                  return std::vector<uint64_t>{vote.compute(p)};
                });
    }
}

void matches(Table& table) {
  for (std::string type : {"b32", "b64"}) {
    auto few = [](size_t, size_t, std::mt19937_64& random) { return random() % 5; };
    auto row = [&](const std::string& text, std::vector<std::string> results, auto value) {
      return Row{.text = text,
                 .results = std::move(results),
                 .operands = {type},
                 .threads = kLanes,
                 .value = value};
    };
    table.add(row(fmt::format("match.any.sync.{} $0, $1, -1;", type), {"b32"}, few),
              [](const Operands& in, size_t lane) {
                uint64_t mask = 0;
                for (size_t i = 0; i < kLanes; ++i) mask |= uint64_t{in(i, 0) == in(lane, 0)} << i;
                return std::vector<uint64_t>{mask};
              });
    std::string all =
        fmt::format("match.all.sync.{} $0|%p1, $2, -1; selp.u32 $1, 1, 0, %p1;", type);
    table.add(row(all, {"b32", "u32"}, few), [](const Operands&, size_t) {
      return std::vector<uint64_t>{0, 0};
    });
    auto same = [](size_t, size_t, std::mt19937_64&) { return uint64_t{77}; };
    table.add(row(all, {"b32", "u32"}, same), [](const Operands&, size_t) {
      return std::vector<uint64_t>{0xffffffff, 1};
    });
  }
}

template <class F>
void reduction(Table& table, const std::string& op, F combine) {
  table.add(Row{.text = fmt::format("redux.sync.{} $0, $1, -1;", op),
                .results = {"b32"},
                .operands = {"b32"},
                .threads = kLanes},
            [=](const Operands& in, size_t) {
              uint64_t result = in(0, 0);
              for (size_t i = 1; i < kLanes; ++i) result = combine(result, in(i, 0)) & 0xffffffff;
              return std::vector<uint64_t>{result};
            });
  // Only the lower half takes part.
  table.add(Row{.text = fmt::format("setp.lt.u32 %p1, %r0, 16; mov.b32 $0, 7;"
                                    "@%p1 redux.sync.{} $0, $1, 0xffff;",
                                    op),
                .results = {"b32"},
                .operands = {"b32"},
                .threads = kLanes},
            [=](const Operands& in, size_t lane) {
              uint64_t result = in(0, 0);
              for (size_t i = 1; i < 16; ++i) result = combine(result, in(i, 0)) & 0xffffffff;
              return std::vector<uint64_t>{lane < 16 ? result : 7};
            });
}

void reductions(Table& table) {
  using U = uint64_t;
  auto sign = [](U x) { return as<int32_t>(x); };
  reduction(table, "add.u32", [](U a, U b) { return a + b; });
  reduction(table, "add.s32", [](U a, U b) { return a + b; });
  reduction(table, "min.u32", [](U a, U b) { return std::min(a, b); });
  reduction(table, "max.u32", [](U a, U b) { return std::max(a, b); });
  reduction(table, "min.s32", [=](U a, U b) { return sign(a) < sign(b) ? a : b; });
  reduction(table, "max.s32", [=](U a, U b) { return sign(a) < sign(b) ? b : a; });
  reduction(table, "and.b32", [](U a, U b) { return a & b; });
  reduction(table, "or.b32", [](U a, U b) { return a | b; });
  reduction(table, "xor.b32", [](U a, U b) { return a ^ b; });
}

}  // namespace

void add_warp(Table& table) {
  shuffles(table);
  votes(table);
  matches(table);
  reductions(table);
  table.add(Row{.text = "activemask.b32 $0;", .results = {"b32"}, .threads = kLanes},
            [](const Operands&, size_t) { return std::vector<uint64_t>{0xffffffff}; });
  table.add(Row{.text = "elect.sync %r1|%p1, -1; vote.sync.ballot.b32 $0, %p1, -1;"
                        "popc.b32 $0, $0;",  // which lane is up to the GPU
                .results = {"b32"},
                .target = 90,
                .threads = kLanes},
            [](const Operands&, size_t) { return std::vector<uint64_t>{1}; });
}

}  // namespace kiln::conformance
