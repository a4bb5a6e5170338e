#include "runtime/ptx/grid_shadow.h"

#include <algorithm>
#include <set>

namespace kiln::ptx {
namespace {

// Is the access, of the last block so far, needed beside those? Of each kind the first two blocks
// are enough: a race of any later one is a race of one of them, too.
template <class Accesses>
bool adds(const Accesses& known, const BlockAccess& access) {
  uint64_t others = 0, other = access.block;
  for (const BlockAccess& each : known) {
    if (!each.same_kind(access)) continue;
    if (each.block == access.block && each.releases == access.releases) return false;
    if (each.block != access.block && (others == 0 || each.block != other)) {
      other = each.block;
      ++others;
    }
  }
  return others < 2;
}

bool ordered(const BlockAccess& a, const BlockAccess& b) {
  return (a.published && b.acquired) || (b.published && a.acquired);
}

bool conflict(const BlockAccess& a, const BlockAccess& b) {
  return a.block != b.block && (a.write || b.write) && !(a.strong && b.strong) && !ordered(a, b);
}

}  // namespace

void GridShadow::begin(uint64_t block) {
  block_ = block;
  first_access_ = accesses_.size();
  of_block_.clear();
  last_kind_ = ~uint64_t{0};
  releases_ = fenced_ = published_ = 0;
  seen_ = acquired_ = false;
}

void GridShadow::end() {
  for (size_t i = first_access_; i < accesses_.size(); ++i)
    accesses_[i].published = accesses_[i].releases < published_;
}

void GridShadow::fence() {
  acquired_ |= seen_;
  fenced_ = ++releases_;
}

void GridShadow::strong_access(bool reads, bool writes, bool acquires, bool releases) {
  seen_ |= reads;
  acquired_ |= reads && acquires;
  if (writes) published_ = releases ? ++releases_ : std::max(published_, fenced_);
}

uint32_t& GridShadow::word(uint64_t address) {
  const uint64_t page = address / 4 / kPageWords;
  if (page != last_page_) {
    auto& found = pages_[page];
    if (!found) found = std::make_unique<Page>();
    last_page_ = page;
    words_ = found.get();
  }
  return (*words_)[address / 4 % kPageWords];
}

uint32_t GridShadow::access(int32_t instruction, bool write, bool strong) {
  const uint64_t kind = uint64_t{static_cast<uint32_t>(instruction)} << 32 |
                        uint64_t{releases_} << 3 | uint64_t{write} << 2 | uint64_t{strong} << 1 |
                        uint64_t{acquired_};
  if (kind == last_kind_) return last_access_;
  auto [it, is_new] = of_block_.try_emplace(kind, static_cast<uint32_t>(accesses_.size()));
  if (is_new)
    accesses_.push_back({block_, instruction, write, strong, acquired_, false, releases_});
  last_kind_ = kind;
  return last_access_ = it->second;
}

uint32_t GridShadow::with(uint32_t set, uint32_t access) {
  const uint64_t growth = uint64_t{set} << 32 | access;
  if (growth == last_growth_) return last_set_;
  auto [it, is_new] = larger_.try_emplace(growth, set);
  if (is_new) {
    std::vector<BlockAccess> known;
    for (uint32_t each : sets_[set]) known.push_back(accesses_[each]);
    if (adds(known, accesses_[access])) {
      it->second = static_cast<uint32_t>(sets_.size());
      sets_.push_back(sets_[set]);
      sets_.back().push_back(access);
    }
  }
  last_growth_ = growth;
  return last_set_ = it->second;
}

void GridShadow::note(uint64_t address, uint32_t bytes, int32_t instruction, bool write,
                      bool strong) {
  const uint32_t now = access(instruction, write, strong);
  for (const uint64_t end = address + bytes; address < end;) {
    uint32_t& sets = word(address);
    if ((sets & kParted) == 0) {
      if (address % 4 == 0 && end - address >= 4) {
        sets = with(sets, now);
        address += 4;
        continue;
      }
      parts_.push_back({sets, sets, sets, sets});
      sets = kParted | static_cast<uint32_t>(parts_.size() - 1);
    }
    auto& parts = parts_[sets & ~kParted];
    do parts[address % 4] = with(parts[address % 4], now);
    while (++address < end && address % 4 != 0);
  }
}

// Goes through the bytes that any host thread's blocks touched.
class RaceSearch {
 public:
  RaceSearch(std::span<const std::unique_ptr<GridShadow>> shadows, uint64_t last)
      : shadows_(shadows), last_(last), words_(shadows.size()) {}

  std::vector<BlockRace> find() {
    std::set<uint64_t> pages;
    for (const auto& shadow : shadows_)
      for (const auto& [page, words] : shadow->pages_) pages.insert(page);
    for (uint64_t page : pages) {
      std::vector<const GridShadow::Page*> words;
      for (const auto& shadow : shadows_) {
        auto it = shadow->pages_.find(page);
        words.push_back(it == shadow->pages_.end() ? nullptr : it->second.get());
      }
      for (uint64_t i = 0; i < GridShadow::kPageWords; ++i)
        word(words, i, (page * GridShadow::kPageWords + i) * 4);
    }
    return std::move(races_);
  }

 private:
  void word(const std::vector<const GridShadow::Page*>& pages, uint64_t i, uint64_t address) {
    bool parted = false, same = true;
    for (size_t k = 0; k < pages.size(); ++k) {
      const uint32_t word = pages[k] ? (*pages[k])[i] : 0;
      parted |= (word & GridShadow::kParted) != 0;
      same &= word == words_[k];
      words_[k] = word;
    }
    if (same) return;  // as the word before: as nearly always
    for (uint64_t byte = 0; byte < (parted ? 4 : 1); ++byte) {
      std::vector<uint32_t> sets = words_;
      for (size_t k = 0; k < sets.size(); ++k)
        if ((sets[k] & GridShadow::kParted) != 0)
          sets[k] = shadows_[k]->parts_[sets[k] & ~GridShadow::kParted][byte];
      if (checked_.insert(sets).second) check(sets, address + byte);
    }
  }

  // The accesses of one byte, as one host thread would have noted them for all blocks.
  void check(const std::vector<uint32_t>& sets, uint64_t address) {
    std::vector<BlockAccess> all, kept;
    for (size_t k = 0; k < sets.size(); ++k)
      for (uint32_t access : shadows_[k]->sets_[sets[k]])
        all.push_back(shadows_[k]->accesses_[access]);
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.block < b.block; });
    for (const BlockAccess& access : all)
      if (access.block <= last_ && adds(kept, access)) kept.push_back(access);
    for (const BlockAccess& later : kept)
      for (const BlockAccess& access : kept) {
        if (access.block >= later.block) break;
        if (!conflict(access, later)) continue;
        if (reported_.insert(later.instruction).second) races_.push_back({access, later, address});
        break;
      }
  }

  std::span<const std::unique_ptr<GridShadow>> shadows_;
  const uint64_t last_;
  std::vector<uint32_t> words_;  // of each shadow
  std::set<std::vector<uint32_t>> checked_;
  std::set<int32_t> reported_;
  std::vector<BlockRace> races_;
};

std::vector<BlockRace> GridShadow::races(std::span<const std::unique_ptr<GridShadow>> shadows,
                                         uint64_t last) {
  return RaceSearch(shadows, last).find();
}

}  // namespace kiln::ptx
