// Running small pieces of PTX in tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "runtime/ptx/ptx.h"

namespace kiln::ptx {

// Parameters, laid out as an entry's are: each aligned to its size.
class Parameters {
 public:
  template <class T>
  Parameters& add(T value) {
    bytes_.resize((bytes_.size() + sizeof value - 1) / sizeof value * sizeof value + sizeof value);
    std::memcpy(bytes_.data() + bytes_.size() - sizeof value, &value, sizeof value);
    return *this;
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// A module with one entry "test": parameters `.param .u64 p0`, … and registers %p<32>, %h<64> (16
// bits), %r<64>, %d<64> (64 bits), %q<8> (128 bits).
std::string entry(int parameters, const std::string& body, const std::string& module = "");

// The body of `entry(2, …)` run by one warp: %r0 is the lane, %d0 the address of its 64 bits of
// output, %d1 that of its four 64-bit inputs. Throws the findings if there are any.
std::vector<uint64_t> run_warp(const std::string& body, std::vector<uint64_t> input = {},
                               Options options = {});

// A function of one lane's inputs: `text` with $0 for the result and $1 … for operands, which are
// registers of `bytes[0]`, `bytes[1]`, … bytes (2, 4 or 8). Results and operands as bits.
using Compute = std::function<uint64_t(const uint64_t* operands)>;
// Runs it on values that are interesting and on random ones, and checks every result's bits.
void check_op(const std::string& text, std::vector<int> bytes, const Compute& compute);

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

// Runs a text's only entry over these arrays; all of them are the parameters, in order.
Report run_text(const std::string& text, std::vector<std::vector<uint8_t>*> arrays, Dim3 grid,
                Dim3 block, size_t dynamic_shared = 0, Options options = {});

// Whether a finding of that kind at that line of the PTX is in the report.
bool has(const Report& report, FindingKind kind);
std::string findings(const Report& report);

}  // namespace kiln::ptx
