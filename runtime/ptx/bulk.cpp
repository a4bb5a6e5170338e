#include "runtime/ptx/bulk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/ptx/numeric.h"
#include "runtime/ptx/warp.h"

namespace kiln::ptx {

void BulkCopies::reset() {
  copies_.clear();
  groups_.clear();
}

void BulkCopies::begin(BulkCopy copy) {
  if (block_.clock) copy.due = due(copy);
  copies_.push_back(std::move(copy));
  const AsyncMode mode = block_.grid.options.async;
  if (mode == AsyncMode::AtLatest || (mode == AsyncMode::Random && !block_.chance())) return;
  BulkCopy& now = copies_.back();
  if (now.way != BulkCopy::Way::Store)
    load(now);
  else
    write(now);
  clean();
}

uint64_t BulkCopies::due(const BulkCopy& copy) {
  const Warp& warp = block_.warp(copy.thread / kLanes);
  if (copy.way == BulkCopy::Way::Arrive) return block_.clock->small_copy(warp.index);
  uint64_t bytes = 0;
  for (const BulkPiece& piece : copy.pieces) bytes += piece.bytes;
  const bool load = copy.way == BulkCopy::Way::Load;
  return block_.clock->copy(warp.index, warp.instruction(), load, load ? copy.mbarrier : 0, bytes);
}

void BulkCopies::load(BulkCopy& copy) {
  if (std::exchange(copy.written, true)) return;
  Warp& warp = block_.warp(copy.thread / kLanes);
  Mbarrier* barrier = block_.mbarriers.at(copy.mbarrier);
  if (copy.way == BulkCopy::Way::Arrive) {
    complete_copies(warp, static_cast<int>(copy.thread % kLanes));
    if (barrier) {
      barrier->due = std::max(barrier->due, copy.due);
      block_.mbarriers.arrive(warp, *barrier, 1, 1u << copy.thread % kLanes);
    }
    return;
  }
  const auto size = static_cast<size_t>(bytes_of(copy.type));
  const uint64_t nan = copy.type == Type::F64   ? 0x7fffffffffffffff
                       : copy.type == Type::F32 ? kNaN32
                                                : kNaN16;
  for (const BulkPiece& piece : copy.pieces) {
    std::byte* to = block_.shared.data() + (piece.shared - kSharedBase);
    if (piece.global) {
      std::memcpy(to, piece.global, piece.bytes);
    } else if (!copy.nan) {
      std::memset(to, 0, piece.bytes);
    } else {
      for (size_t i = 0; i < piece.bytes; i += size) std::memcpy(to + i, &nan, size);
    }
  }
  if (barrier) block_.mbarriers.complete(warp, *barrier, copy);
}

void BulkCopies::read(BulkCopy& copy) {
  if (std::exchange(copy.read, true)) return;
  for (const BulkPiece& piece : copy.pieces) {
    const std::byte* from = block_.shared.data() + (piece.shared - kSharedBase);
    copy.data.insert(copy.data.end(), from, from + piece.bytes);
  }
}

void BulkCopies::write(BulkCopy& copy) {
  if (copy.written) return;
  read(copy);
  copy.written = true;
  const std::byte* from = copy.data.data();
  for (const BulkPiece& piece : copy.pieces) {
    if (copy.reduction == Reduction::None)
      std::memcpy(piece.global, from, piece.bytes);
    else
      reduce(copy.reduction, copy.type, piece.global, from, piece.bytes);
    from += piece.bytes;
  }
  copy.data = {};
}

// Loads that took place; stores go when their thread has awaited them.
void BulkCopies::clean() {
  std::erase_if(copies_, [](const BulkCopy& copy) {
    return copy.way != BulkCopy::Way::Store && copy.written;
  });
}

void BulkCopies::wait(Warp& warp, uint32_t thread, uint32_t open, bool reads_only) {
  const uint32_t groups = groups_[thread], until = groups > open ? groups - open : 0;
  for (BulkCopy& copy : copies_) {
    if (copy.way != BulkCopy::Way::Store || copy.thread != thread || copy.group >= until) continue;
    reads_only ? read(copy) : write(copy);
    ++warp.profile().completed;
    warp.wait_until(copy.due, Interval::Kind::WaitCopies);
  }
  Clocks& clocks = block_.clocks;
  const Clocks::Lanes lane = warp.lanes(1u << thread % kLanes);
  clocks.learn(lane, clocks.agent(Clocks::Kind::BulkReads, thread), until);
  if (reads_only) return;
  clocks.learn(lane, clocks.agent(Clocks::Kind::BulkWrites, thread), until);
  std::erase_if(copies_, [&](const BulkCopy& copy) {
    return copy.way == BulkCopy::Way::Store && copy.thread == thread && copy.group < until;
  });
}

void BulkCopies::perform_awaited(uint64_t mbarrier) {
  for (size_t i = 0; i < copies_.size(); ++i)
    if (copies_[i].way != BulkCopy::Way::Store && copies_[i].mbarrier == mbarrier) load(copies_[i]);
  clean();
}

bool BulkCopies::perform_awaited() {
  bool any = false;
  for (size_t i = 0; i < copies_.size(); ++i) {
    BulkCopy& copy = copies_[i];
    if (copy.way == BulkCopy::Way::Store || !block_.is_awaited(copy.mbarrier)) continue;
    load(copy);
    any = true;
    if (block_.grid.options.async == AsyncMode::Random) break;
  }
  clean();
  return any;
}

void BulkCopies::thread_exits(Warp& warp, uint32_t lanes) {
  for (BulkCopy& copy : copies_) {
    if (copy.way != BulkCopy::Way::Store || copy.thread / kLanes != warp.index ||
        (lanes >> copy.thread % kLanes & 1) == 0)
      continue;
    const auto agent = block_.clocks.agent(Clocks::Kind::BulkReads, copy.thread);
    const auto lane = static_cast<int>(copy.thread % kLanes);
    if (!block_.clocks.ordered(agent, lane, copy.group + 1, {warp.index, lane})) {
      Finding finding{FindingKind::AsyncNotAwaited,
                      fmt::format("{} leaves, and its bulk copy out of shared memory need not have "
                                  "read that yet",
                                  warp.thread_name(lane)),
                      "cp.async.bulk.commit_group and cp.async.bulk.wait_group(.read) before"};
      warp.report_at(copy.position, std::move(finding));
    }
    write(copy);
  }
}

void BulkCopies::finish() {
  for (size_t i = 0; i < copies_.size(); ++i)
    copies_[i].way == BulkCopy::Way::Store ? write(copies_[i]) : load(copies_[i]);
}

}  // namespace kiln::ptx
