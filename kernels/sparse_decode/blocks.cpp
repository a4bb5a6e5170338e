#include "kernels/sparse_decode/blocks.h"

namespace kiln {
namespace {

constexpr int64_t kBits = 32;   // of a word
constexpr int64_t kWords = 32;  // of a window
constexpr int64_t kWindow = kWords * kBits;
constexpr int64_t kEntries = 256;  // of a list that are looked at together

Expr bit(const Expr& place) {
  return cast(1, U32) << cast(place, U32);
}

// How many bits of a word are set: sums of 2, 4, 8 bits, then of the four bytes.
Expr bit_count(const Expr& word) {
  auto pairs = word - ((word >> 1) & 0x55555555);
  auto fours = (pairs & 0x33333333) + ((pairs >> 2) & 0x33333333);
  auto bytes = (fours + (fours >> 4)) & 0x0F0F0F0F;
  return cast((bytes * 0x01010101) >> 24, I32);
}

// A bit for each selected block from `first` on: `words` (shared). What meets in a word is or-ed.
void mark_listed(const BlockRow& row, const Expr& first, const Tile& words) {
  clear(words);
  for (auto chunk : serial(ceildiv(row.entries, kEntries)))
    for (auto i : parallel(kEntries)) {
      auto position = chunk * kEntries + i;
      auto block = row.element(position);
      auto place = block - first;
      auto inside = position < row.entries && block < row.limit && place >= 0 && place < kWindow;
      atomic_or(words(select(inside, place / kBits, -1)), bit(place % kBits));
    }
}

void mark_masked(const BlockRow& row, const Expr& first, const Tile& words) {
  Tile bits = alloc_fragment({kWords, kBits}, U32), together = alloc_fragment({kWords}, U32);
  auto end = min(row.entries, row.limit);
  for (auto [word, place] : parallel(kWords, kBits)) {
    auto block = first + word * kBits + place;
    auto is = block < end && row.element(block) != 0;
    bits(word, place) = select(is, bit(place), cast(0, U32));
  }
  reduce_or(bits, together);
  copy(together, words);
}

// Is what is selected an ascending prefix of a list, as those that made it mostly leave it? And how
// long is it? Each selected entry must follow a smaller one.
struct Prefix {
  Var ordered = 1, count = 0;

  explicit Prefix(const BlockRow& row) {
    constexpr int64_t kBad = 1 << 16;  // more than entries that are looked at together
    Tile seen = alloc_fragment({1, kEntries}, I32), sum = alloc_fragment({1}, I32);
    Tile total = alloc_shared({1}, I32);
    for (auto chunk : serial(ceildiv(row.entries, kEntries))) {
      for (auto [i, j] : parallel(1, kEntries)) {
        auto position = chunk * kEntries + j;
        auto block = row.element(position), before = row.element(position - 1);
        auto is = position < row.entries && block >= 0 && block < row.limit;
        auto follows = position == 0 || (before >= 0 && before < block);
        seen(i, j) = select(is, select(follows, 1, kBad), 0);
      }
      reduce_sum(seen, sum);
      copy(sum, total);
      ordered *= select(total(0) < kBad, 1, 0);
      count += total(0);
    }
  }
};

// The share of the first `count` entries as they are.
void take_listed(const BlockRow& row, const Share& share, const Expr& count, const Tile& list) {
  const Expr mine = share.of(count);
  for (auto chunk : serial(ceildiv(mine, kEntries)))
    for (auto i : parallel(kEntries)) {
      auto place = chunk * kEntries + i;
      auto is = place < mine;
      list(select(is, place, -1)) = row.element(select(is, share.part + place * share.parts, -1));
    }
}

// Whatever the order: a bit for each selected block, ranks by counting bits. How many are selected.
Expr rank_blocks(const BlockRow& row, const Share& share, const Tile& list) {
  Tile words = alloc_shared({kWords}, U32), before = alloc_shared({kWords}, I32);
  Tile counts = alloc_fragment({kWords, kWords}, I32), sums = alloc_fragment({kWords}, I32);
  Var total = 0;
  for (auto window : serial(ceildiv(row.limit, kWindow))) {
    auto first = window * kWindow;
    row.listed ? mark_listed(row, first, words) : mark_masked(row, first, words);
    for (auto [word, other] : parallel(kWords, kWords))
      counts(word, other) = select(other < word, bit_count(words(other)), 0);
    reduce_sum(counts, sums);
    copy(sums, before);
    const Expr passed = total.read();
    for (auto [word, place] : parallel(kWords, kBits)) {
      auto here = words(word);
      auto rank = passed + before(word) + bit_count(here & (bit(place) - 1));
      auto is = (here & bit(place)) != 0 && rank % share.parts == share.part;
      list(select(is, rank / share.parts, -1)) = first + word * kBits + place;
    }
    total += before(kWords - 1) + bit_count(words(kWords - 1));
  }
  return total.read();
}

}  // namespace

Expr Share::of(const Expr& count) const {
  return select(part < parts, (count + parts - 1 - part) / parts, 0);
}

Expr list_blocks(const BlockRow& row, const Share& share, const Tile& list) {
  if (!row.listed) return share.of(rank_blocks(row, share, list));
  const Prefix prefix(row);
  Var count = prefix.count.read();
  when(
      prefix.ordered.read() == 1, [&] { take_listed(row, share, prefix.count.read(), list); },
      [&] { count = rank_blocks(row, share, list); });
  return share.of(count.read());
}

}  // namespace kiln
