#include "tests/ptx/hopper.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <regex>
#include <sstream>

#include "runtime/ptx/numeric.h"

namespace kiln::ptx {
namespace {

constexpr int kD = 128, kBlock = 128;
constexpr size_t kShared = 230592;
constexpr int kMessages = 229488;  // five of 16 bytes, in shared memory

// The kernel's only parameter.
struct alignas(128) Arguments {
  TensorMapBytes q, k, v, o;
  const int* lists;
  const int* counts;
  const uint8_t* mask;
  const int* order;  // of tiles: head in the upper half, query block in the lower; may be null
  int* counter;
  void* out;
  int query_blocks, list_stride, tiles, rows;
  float scale_log2;
  int causal;
  uint64_t* clocks;
};
static_assert(sizeof(Arguments) == 640);

double value(const std::vector<uint16_t>& of, size_t at) {
  return static_cast<double>(to_float(Half{of[at]}));
}

}  // namespace

std::string hopper_text(const std::string& file) {
  std::ifstream in(std::string(KILN_TESTS_DIR) + "/ptx/hopper/" + file);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

int HopperProblem::blocks() const {
  return rows / kBlock;
}

int HopperProblem::stride() const {
  return std::max(blocks(), longest);
}

void HopperProblem::draw(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  const auto size = static_cast<size_t>(heads * rows * kD);
  for (auto* each : {&q, &k, &v}) {
    each->resize(size);
    for (uint16_t& x : *each) x = to_half(normal(random) * (each == &q ? amplitude : 1)).bits;
  }
  o.assign(size, 0xffff);
  const auto tiles = static_cast<size_t>(heads * blocks());
  const auto stride = static_cast<size_t>(this->stride());
  lists.assign(tiles * stride, 0);
  counts.assign(tiles, 0);
  order.clear();
  for (size_t tile = 0; tile < tiles; ++tile) {
    const int row = static_cast<int>(tile) % blocks();
    for (int j = 0; j < blocks(); ++j) {
      bool listed = j == row || std::uniform_real_distribution<>()(random) < density;
      if (causal && j > row) listed = false;
      if (listed) lists[tile * stride + static_cast<size_t>(counts[tile]++)] = j;
    }
    for (int& n = counts[tile]; n < longest; ++n)
      lists[tile * stride + static_cast<size_t>(n)] =
          lists[tile * stride + random() % static_cast<uint64_t>(n)];
    order.push_back(static_cast<int>(tile) / blocks() << 16 | row);
  }
  std::shuffle(order.begin(), order.end(), random);
  expected.clear();
  for (int head = 0; head < heads; ++head)
    for (int row = 0; row < rows; ++row) {
      const std::vector<double> values = attend(head, row);
      expected.insert(expected.end(), values.begin(), values.end());
    }
}

TensorMapBytes HopperProblem::map(const std::vector<uint16_t>& of, uint32_t box_rows,
                                  uint32_t panels) const {
  TensorMap map;
  map.rank = 3;
  map.type = Type::F16;
  map.address = reinterpret_cast<uint64_t>(of.data());
  const uint64_t extents[] = {64, static_cast<uint64_t>(heads * rows), kD / 64};
  const uint64_t strides[] = {0, kD * 2, 128};
  const uint32_t box[] = {64, box_rows, panels};
  for (int axis = 0; axis < 3; ++axis) {
    map.extents[axis] = extents[axis];
    map.strides[axis] = strides[axis];
    map.box[axis] = box[axis];
  }
  map.swizzle = 128;
  return encode(map);
}

Report HopperProblem::run(const Program& program, uint32_t grid, const Options& options) {
  std::fill(std::begin(counter), std::end(counter), 0);
  std::fill(std::begin(clocks), std::end(clocks), 0);
  Arguments arguments{};
  arguments.q = map(q, 128, 2);
  arguments.k = map(k, 128, 2);
  arguments.v = map(v, 128, 2);
  arguments.o = map(o, 16, 1);
  arguments.lists = lists.data();
  arguments.counts = counts.data();
  arguments.order = ordered ? order.data() : nullptr;
  arguments.counter = counter;
  arguments.out = o.data();
  arguments.query_blocks = blocks();
  arguments.list_stride = stride();
  arguments.tiles = heads * blocks();
  arguments.rows = rows;
  arguments.scale_log2 = static_cast<float>(std::log2(std::exp(1.0)) / std::sqrt(double{kD}));
  arguments.causal = causal;
  arguments.clocks = clocks;
  Memory memory;
  memory.add(q.data(), 2 * q.size(), "q", false);
  memory.add(k.data(), 2 * k.size(), "k", false);
  memory.add(v.data(), 2 * v.size(), "v", false);
  memory.add(o.data(), 2 * o.size(), "o");
  memory.add(lists.data(), 4 * lists.size(), "lists", false);
  memory.add(counts.data(), 4 * counts.size(), "counts", false);
  memory.add(order.data(), 4 * order.size(), "order", false);
  memory.add(counter, sizeof counter, "counter");
  memory.add(clocks, sizeof clocks, "clocks");
  o.assign(o.size(), 0xffff);
  return launch(program, program.entries().at(0), {grid}, {384}, kShared,
                std::as_bytes(std::span(&arguments, 1)), memory, options);
}

double HopperProblem::error() const {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < o.size(); ++i) {
    const double difference = expected[i] - value(o, i);
    worst = std::max(worst, std::isfinite(difference) ? std::fabs(difference) : 1e9);
    largest = std::max(largest, std::fabs(expected[i]));
  }
  return worst / largest;
}

std::string HopperProblem::damage(double most) const {
  if (!(error() < most)) return fmt::format("an error of {}", error());
  if (counter[0] != 0 || counter[1] != 0)
    return fmt::format("the counters are {} and {}, expected 0", counter[0], counter[1]);
  for (uint64_t time : clocks)
    if (time == 0 || time >> 32 != 0) return fmt::format("a time of {}", time);
  return "";
}

std::vector<double> HopperProblem::attend(int head, int row) const {
  const auto tile = static_cast<size_t>(head * blocks() + row / kBlock);
  const auto query = static_cast<size_t>((head * rows + row) * kD);
  std::vector<double> sum(kD);
  double weights = 0;
  for (int i = 0; i < counts[tile]; ++i)
    for (int j = 0; j < kBlock; ++j) {
      const int key =
          lists[tile * static_cast<size_t>(stride()) + static_cast<size_t>(i)] * kBlock + j;
      if (causal && key > row) continue;
      const auto at = static_cast<size_t>((head * rows + key) * kD);
      double score = 0;
      for (size_t d = 0; d < kD; ++d) score += value(q, query + d) * value(k, at + d);
      const double weight = std::exp(score / std::sqrt(double{kD}));
      weights += weight;
      for (size_t d = 0; d < kD; ++d) sum[d] += weight * value(v, at + d);
    }
  for (double& x : sum) x /= weights;
  return sum;
}

std::string hopper_findings(const Report& report) {
  const auto is_known = [](const Finding& finding) {
    if (finding.kind != FindingKind::Race) return false;
    if (finding.message.find("'counter'") != std::string::npos) return true;
    static const std::regex message(
        R"(.*'smraw' \+ (\d+)\); thread (\d+) reads it .*\(ld\.shared\.v4\.u32\).*)");
    std::smatch found;
    if (!std::regex_match(finding.message, found, message)) return false;
    const int at = std::stoi(found[1]);
    return at >= kMessages && at < kMessages + 5 * 16 && std::stoi(found[2]) % 32 != 0;
  };
  std::string all;
  for (const Finding& finding : report.findings)
    if (!is_known(finding)) all += finding.text();
  return all;
}

}  // namespace kiln::ptx
