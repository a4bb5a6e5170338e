// A block's timeline for people: Chrome's trace events.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "runtime/ptx/access.h"

namespace kiln::ptx {
namespace {

// Rows of one kind are a process of the trace, each row a thread.
enum Group { kWarps, kTensorCores, kStages };

class Events {
 public:
  explicit Events(const std::string& block) {
    const char* groups[] = {"warps", "tensor cores", "stages"};
    for (int group : {kWarps, kTensorCores, kStages})
      add(R"("name": "process_name", "ph": "M", "pid": {}, "tid": 0, "args": {{"name": "{}: {}"}})",
          group, block, groups[group]);
  }

  void name(Group group, uint64_t row, const std::string& name) {
    add(R"("name": "thread_name", "ph": "M", "pid": {}, "tid": {}, "args": {{"name": "{}"}})",
        static_cast<int>(group), row, name);
    add(R"("name": "thread_sort_index", "ph": "M", "pid": {}, "tid": {}, "args": {{"sort_index": {}}})",
        static_cast<int>(group), row, row);
  }

  void complete(Group group, uint64_t row, std::string_view what, const Interval& i,
                const std::string& more = "") {
    add(R"("name": "{}", "ph": "X", "pid": {}, "tid": {}, "ts": {}, "dur": {}, "args": {{"first PTX line": {}, "last PTX line": {}{}}})",
        what, static_cast<int>(group), row, i.begin, i.end - i.begin, i.first_line, i.last_line,
        more);
  }

  std::string text(const Timeline& timeline) const {
    return fmt::format(
        "{{\"displayTimeUnit\": \"ns\",\n\"otherData\": {{\"clocks\": {}, \"tensor core share\": "
        "{:.4f}}},\n\"traceEvents\": [\n{}\n]}}\n",
        timeline.clocks, timeline.tensor_share(), fmt::join(events_, ",\n"));
  }

 private:
  template <class... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    events_.push_back(fmt::format("{{{}}}", fmt::format(format, std::forward<Values>(values)...)));
  }
  std::vector<std::string> events_;
};

std::string stage_name(uint64_t mbarrier) {
  return fmt::format("mbarrier at shared+{}", mbarrier - kSharedBase);
}

// Warps that copy for others produce, those that multiply consume.
std::string role(const Timeline& timeline, uint32_t warp) {
  bool loads = false, multiplies = false;
  for (const Interval& i : timeline.intervals) {
    if (i.warp != warp) continue;
    loads |= i.kind == Interval::Kind::Load;
    multiplies |= i.kind == Interval::Kind::Product;
  }
  if (loads == multiplies) return "";
  return loads ? ", producer" : ", consumer";
}

bool is_copy(const Interval& i) {
  return i.kind == Interval::Kind::Load || i.kind == Interval::Kind::Store;
}

constexpr uint64_t kStored = ~uint64_t{0};

// Loads of one mbarrier are in one row, and so are the stores of a warp.
std::pair<uint64_t, uint64_t> place_of(const Interval& i) {
  return i.kind == Interval::Kind::Load ? std::pair<uint64_t, uint64_t>{i.mbarrier, 0}
                                        : std::pair<uint64_t, uint64_t>{kStored, i.warp};
}

// A trace's events in one row must not overlap: copies of one place that do are one.
std::vector<Interval> merged_copies(const Timeline& timeline) {
  std::vector<Interval> all;
  std::map<std::pair<uint64_t, uint64_t>, size_t> last;
  for (const Interval& i : timeline.intervals) {
    if (!is_copy(i)) continue;
    const auto [it, fresh] = last.try_emplace(place_of(i), all.size());
    if (!fresh && i.begin < all[it->second].end) {
      Interval& one = all[it->second];
      one.end = std::max(one.end, i.end);
      one.bytes += i.bytes;
      one.first_line = std::min(one.first_line, i.first_line);
      one.last_line = std::max(one.last_line, i.last_line);
      continue;
    }
    it->second = all.size();
    all.push_back(i);
  }
  return all;
}

}  // namespace

std::string_view name(Interval::Kind kind) {
  switch (kind) {
    case Interval::Kind::Issue: return "issue";
    case Interval::Kind::WaitBarrier: return "wait: bar.sync";
    case Interval::Kind::WaitMbarrier: return "wait: mbarrier";
    case Interval::Kind::WaitProducts: return "wait: wgmma.wait_group";
    case Interval::Kind::WaitCopies: return "wait: copies";
    case Interval::Kind::Product: return "wgmma";
    case Interval::Kind::Load: return "TMA load";
    default: return "TMA store";
  }
}

std::string trace_events(const Timeline& timeline) {
  Events events(fmt::format("{}, block {} {} {}", timeline.entry, timeline.block.x,
                            timeline.block.y, timeline.block.z));
  // Rows of copies: the stages by their mbarriers, then warps that store.
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> rows;
  const auto copies = merged_copies(timeline);
  for (const Interval& i : copies) rows.try_emplace(place_of(i));
  uint64_t count = 0;
  for (auto& [place, row] : rows) {
    row = count++;
    const auto [mbarrier, warp] = place;
    events.name(kStages, row,
                mbarrier != kStored ? fmt::format("stage {}: {}", row, stage_name(mbarrier))
                                    : fmt::format("stores of warp {}", warp));
  }
  for (uint32_t warp = 0; warp < timeline.warps; ++warp)
    events.name(kWarps, warp, fmt::format("warp {}{}", warp, role(timeline, warp)));
  if (timeline.tensor_clocks > 0)
    for (uint64_t quarter = 0; quarter < 4; ++quarter)
      events.name(kTensorCores, quarter, fmt::format("quarter {}", quarter));
  for (const Interval& i : copies)
    events.complete(kStages, rows[place_of(i)], name(i.kind), i,
                    fmt::format(R"(, "bytes": {}, "warp": {})", i.bytes, i.warp));
  for (const Interval& i : timeline.intervals) {
    if (is_copy(i)) continue;
    if (i.kind == Interval::Kind::Product) {
      events.complete(kTensorCores, i.warp % 4, name(i.kind), i,
                      fmt::format(R"(, "warp": {})", i.warp));
      continue;
    }
    const auto stage = rows.find({i.mbarrier, 0});
    const std::string which = i.mbarrier == 0 ? ""
                              : stage == rows.end()
                                  ? fmt::format(R"(, "mbarrier": "{}")", stage_name(i.mbarrier))
                                  : fmt::format(R"(, "mbarrier": "stage {}")", stage->second);
    events.complete(kWarps, i.warp, name(i.kind), i, which);
  }
  return events.text(timeline);
}

}  // namespace kiln::ptx
