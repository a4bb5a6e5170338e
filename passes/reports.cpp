// One workspace counts: an element a device_assert, 1 where it did not hold, then an element a
// watch, how often it was reached. Each recorded watch has a workspace of elements and one of block
// indices, a record for each time, the first ones only.
#include "passes/reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>

#include "ir/log.h"
#include "ir/memory.h"
#include "ir/report.h"
#include "passes/rewrite.h"

namespace kiln {
namespace {

constexpr const char* kCounts = "kiln.reports";               // users' names have no dot
constexpr int64_t kMostBytes = 4 << 20, kMostRecords = 4096;  // of one watch

std::string elements_name(size_t watch) {
  return fmt::format("kiln.watch{}", watch);
}
std::string blocks_name(size_t watch) {
  return fmt::format("kiln.watch{}.blocks", watch);
}

size_t bytes_of(const Type& type) {
  return static_cast<size_t>(count(type.shape)) * size_of(type.dtype);
}

}  // namespace

class Instrumentation {
 public:
  Instrumentation(const Kernel& traced, Watches watches)
      : done_{traced, {}}, kernel_(done_.kernel), recorded_(watches == Watches::Recorded) {}

  Instrumented run() {
    find();
    if (!done_.reports.empty()) add_workspaces();
    for (OpId id : std::vector<OpId>(kernel_.region(kernel_.body).ops))
      if (kernel_.op(id).code == OpCode::Launch) replace(kernel_.op(id).regions[0]);
    return std::move(done_);
  }

 private:
  void find() {
    walk(kernel_, kernel_.body, [&](OpId id) {
      Op& op = kernel_.op(id);
      if (op.code == OpCode::DeviceAssert)
        done_.reports.assertions_.push_back({op.loc, op.word("text")});
      if (op.code != OpCode::Watch) return;
      const std::string headline = watch_headline(op.loc, op.word("text"));
      if (!recorded_) return op.attrs.set("text", headline);
      const Type& type = kernel_.type(op.operands[0]);
      const auto bytes = static_cast<int64_t>(bytes_of(type));
      const int64_t capacity = std::clamp<int64_t>(kMostBytes / bytes, 1, kMostRecords);
      done_.reports.watches_.push_back({headline, type, capacity});
    });
  }

  // In front of everything, with the launch that clears the counts.
  void add_workspaces() {
    std::vector<OpId> rest;
    rest.swap(kernel_.region(kernel_.body).ops);
    Builder build(kernel_);
    const auto& [assertions, watches] = std::tie(done_.reports.assertions_, done_.reports.watches_);
    counts_ =
        workspace(build, kCounts, I32, {static_cast<int64_t>(assertions.size() + watches.size())});
    for (size_t i = 0; i < watches.size(); ++i) {
      Shape shape = watches[i].type.shape;
      shape.insert(shape.begin(), watches[i].capacity);
      elements_.push_back(workspace(build, elements_name(i), watches[i].type.dtype, shape));
      blocks_.push_back(workspace(build, blocks_name(i), I32, {watches[i].capacity, 3}));
    }
    const OpId launch = build.emit(OpCode::Launch, {build.constant(I32, 1)});
    const RegionId body = build.add_region(launch);
    kernel_.add_argument(body, Type::scalar(I32));
    {
      Builder::Scope scope(build, body);
      build.fill(0, counts_);
    }
    std::vector<OpId>& ops = kernel_.region(kernel_.body).ops;
    ops.insert(ops.end(), rest.begin(), rest.end());
  }

  Value workspace(Builder& build, const std::string& name, DType dtype, const Shape& shape) {
    Attrs attrs;
    attrs.set("name", name);
    attrs.set("role", std::string("workspace"));
    return kernel_.op(build.emit(OpCode::Tensor, {}, std::move(attrs), Type::tensor(dtype, shape)))
        .result;
  }

  void replace(RegionId launch) {
    ValueMap names;
    rewrite(kernel_, launch, names, [&](Builder& build, OpId id) {
      const Op op = kernel_.op(id);
      if (op.code == OpCode::DeviceAssert) return count(build, op), true;
      if (op.code != OpCode::Watch || !recorded_) return false;
      record(build, op, kernel_.region(launch).args);
      return true;
    });
  }

  // Where the condition holds, the place is outside.
  void count(Builder& build, const Op& op) {
    Value none = build.constant(I32, -1), own = build.constant(I32, assertion_++);
    Value place = build.select(op.operands[0], none, own);
    build.atomic("or", build.constant(I32, 1), counts_, {place});
  }

  void record(Builder& build, const Op& op, const std::vector<Value>& block) {
    const auto number = static_cast<size_t>(watch_++);
    const Reports::Watch& watch = done_.reports.watches_[number];
    const auto first = static_cast<int64_t>(done_.reports.assertions_.size());
    Value place = build.constant(I32, first + static_cast<int64_t>(number));
    Value record = build.atomic("add", build.constant(I32, 1), counts_, {place});
    Value fits = build.compare("lt", record, build.constant(I32, watch.capacity));
    RegionId region = build.add_region(build.emit(OpCode::If, {fits}));
    Builder::Scope scope(build, region);
    for (size_t axis = 0; axis < 3; ++axis) {
      Value index = axis < block.size() ? block[axis] : build.constant(I32, 0);
      build.store(index, blocks_[number],
                  {record, build.constant(I32, static_cast<int64_t>(axis))});
    }
    std::vector<Value> start(watch.type.shape.size() + 1, build.constant(I32, 0));
    start[0] = record;
    Shape shape = watch.type.shape;
    shape.insert(shape.begin(), 1);
    Value view = build.slice(elements_[number], start, shape);
    build.emit(OpCode::Copy, {op.operands[0], view});
  }

  Instrumented done_;
  Kernel& kernel_;
  const bool recorded_;
  Value counts_;
  std::vector<Value> elements_, blocks_;  // by watch
  int64_t assertion_ = 0, watch_ = 0;     // the next
};

Instrumented instrument(const Kernel& traced, Watches watches) {
  return Instrumentation(traced, watches).run();
}

void Reports::deliver(const Workspace& workspace) const {
  if (empty()) return;
  std::vector<int32_t> counts(assertions_.size() + watches_.size());
  std::memcpy(counts.data(), workspace(kCounts, counts.size() * sizeof(int32_t)),
              counts.size() * sizeof(int32_t));
  for (size_t i = 0; i < watches_.size(); ++i)
    deliver(watches_[i], i, counts[assertions_.size() + i], workspace);
  for (size_t i = 0; i < assertions_.size(); ++i)
    if (counts[i] != 0) throw assertion_error(assertions_[i].loc, assertions_[i].text);
}

void Reports::deliver(const Watch& watch, size_t number, int64_t records,
                      const Workspace& workspace) const {
  const auto kept = static_cast<size_t>(std::min(records, watch.capacity));
  if (kept == 0) return;
  std::vector<std::array<int32_t, 3>> blocks(kept);
  std::memcpy(blocks.data(), workspace(blocks_name(number), kept * sizeof blocks[0]),
              kept * sizeof blocks[0]);
  std::vector<size_t> order(kept);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::lexicographical_compare(blocks[a].rbegin(), blocks[a].rend(), blocks[b].rbegin(),
                                        blocks[b].rend());
  });
  const size_t bytes = bytes_of(watch.type), element = size_of(watch.type.dtype);
  const std::byte* elements = workspace(elements_name(number), kept * bytes);
  for (size_t at : order) {
    const auto& [x, y, z] = blocks[at];
    const auto value = [&](int64_t i) {
      return std::optional(
          load_element(watch.type.dtype, elements + at * bytes + static_cast<size_t>(i) * element));
    };
    log_message(LogLevel::Output, watch_text(watch.headline, {x, y, z}, watch.type, value));
  }
  if (records > watch.capacity)
    log_message(LogLevel::Output, fmt::format("{}: {} more, for which there was no room\n",
                                              watch.headline, records - watch.capacity));
}

}  // namespace kiln
