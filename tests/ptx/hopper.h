// Whole Hopper kernels (tests/ptx/hopper): block-sparse attention as nvcc compiled it (xdn) and as
// LLVM compiled the same source (best22), and with other schedules, as nvcc did (noov, base, xk1,
// xo0, xv4); problems whose results are known.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/ptx/ptx.h"
#include "runtime/ptx/tensor_map.h"

namespace kiln::ptx {

std::string hopper_text(const std::string& file);  // of tests/ptx/hopper

// Heads of `rows` queries and keys of 128 elements, f16; blocks of 128 × 128, listed by density,
// the diagonal always.
struct HopperProblem {
  int heads, rows;
  bool causal;
  double density;
  float amplitude = 1;   // of the queries
  bool ordered = false;  // tiles in an order of the caller's, a random one
  int longest = 0;       // each list names blocks again until it is as long

  std::vector<uint16_t> q = {}, k = {}, v = {}, o = {};
  std::vector<int> lists = {}, counts = {}, order = {};
  std::vector<double> expected = {};
  int counter[2] = {};      // the next tile, and how many blocks have ended
  uint64_t clocks[2] = {};  // that a block took, and nanoseconds

  void draw(uint64_t seed);
  Report run(const Program& program, uint32_t grid, const Options& options);
  // The largest error over all rows, of the largest value; 1e9 or so if one is not finite.
  double error() const;
  // What is wrong about a run's output, beyond that error: the counters must be back where they
  // were, the times told be some. Empty if nothing is.
  std::string damage(double most) const;

 private:
  int blocks() const;
  int stride() const;  // of lists
  TensorMapBytes map(const std::vector<uint16_t>& of, uint32_t box_rows, uint32_t panels) const;
  std::vector<double> attend(int head, int row) const;
};

// What was found, but for two things, races by the letter of PTX that no GPU shows. The last block
// to end sets the counters back by ordinary stores, behind a relaxed atomic and no fence; no block
// looks at them any more. And 32 lanes read the message of a slot, whose first then gives the slot
// back for all, without a bar.warp.sync between: before it does, all lanes have met in a wgmma,
// which orders no memory. (compute-sanitizer's racecheck tells the latter, too.)
std::string hopper_findings(const Report& report);

}  // namespace kiln::ptx
