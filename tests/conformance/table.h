// Writing tables of snippets.
#pragma once

#include <cstring>
#include <random>
#include <string_view>

#include "tests/conformance/snippet.h"

namespace kiln::conformance {

// Operands of all threads: operand i of a thread, as bits.
struct Operands {
  const std::vector<uint64_t>& all;
  size_t count;
  uint64_t operator()(size_t thread, size_t i) const { return all[thread * count + i]; }
};

// Slots of a thread's results; `thread` and the operands are given.
using Results = std::function<std::vector<uint64_t>(const Operands& in, size_t thread)>;
// A single result of a thread's own operands.
using Lane = std::function<uint64_t(const uint64_t* operands)>;

// One row: $0 … are registers, results first, then operands; %r0 is the thread, %d0 and %d1 the
// addresses of its output and input slots; %p, %h, %r, %d from 1, 1, 1, 2 on up to 15 are free.
struct Row {
  std::string text;
  std::vector<std::string> results = {}, operands = {};  // types: "u32", "f16x2", "b64"
  Element element = Element::Bits;
  Tolerance tolerance = {};
  int target = 80;
  int threads = 256;
  std::string name = "";  // `text` if empty
  // Replaces the seeded random value of an operand.
  std::function<uint64_t(size_t thread, size_t i, std::mt19937_64& random)> value = nullptr;
};

// Of sm_90: a protocol of many instructions between so many threads, which has a name.
Row hopper_row(size_t threads, const std::string& name, const std::string& text,
               std::vector<std::string> results, std::vector<std::string> operands = {});

class Table {
 public:
  void add(const Row& row, const Results& results);
  void add(const Row& row, const Lane& lane);
  void add(Snippet snippet) { snippets_.push_back(std::move(snippet)); }  // whole, as written
  std::string next_entry() const;                                         // its entry's name
  size_t size() const { return snippets_.size(); }
  std::vector<Snippet> take() { return std::move(snippets_); }

 private:
  std::vector<Snippet> snippets_;
};

void add_integer(Table& table);
void add_bits(Table& table);
void add_float(Table& table);
void add_half(Table& table);
void add_math(Table& table);
void add_compare(Table& table);
void add_convert(Table& table);
void add_memory(Table& table);
void add_atomic(Table& table);
void add_warp(Table& table);
void add_matrix(Table& table);
void add_mma(Table& table);
void add_wgmma(Table& table);
void add_mbarrier(Table& table);
void add_bulk(Table& table);

template <class T>
T as(uint64_t bits) {  // the value in the low bits
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
uint64_t bits(T value) {
  uint64_t all = 0;
  std::memcpy(&all, &value, sizeof value);
  return all;
}

std::string replaced(std::string text, std::string_view what, std::string_view by);

// Ends and special values of the type, small values, and anything.
uint64_t random_value(std::string_view type, std::mt19937_64& random);
size_t width(std::string_view type);  // bytes

}  // namespace kiln::conformance
