// for i { if guard(i) { copy source(i) → t; work(t) } }   with `stages` = S becomes
//
//     channel c of S slots
//     for the first S-1 rounds i { if i is a round and guard(i) { push source(i) }; commit_copies }
//     for i {
//       barrier, then: if i+S-1 is a round and guard(i+S-1) { push source(i+S-1) }; commit_copies
//       if guard(i) { t = pop c; work(t); release t }
//     }
//
// The barrier is that of a pop where one stands at the top of the round: there the fetch follows
// it. Of a copy that cp.async cannot make, the fetch only loads, into a fragment that waits for the
// end of the round: `if it was loaded { push fragment }` stands before the releases there, so that
// the slot which it fills was released in the round before. Only of a copy in a guard it comes
// after the release, and one slot less will do. A copy is fetched ahead if all that
// decides where it reads is known before its round (RoundSlice), nothing in the loop writes its
// source, and its tile holds nothing else: then the slots may stand for it (fetch_candidates.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "ir/builder.h"
#include "ir/layout/tile_layout.h"
#include "ir/walk.h"
#include "passes/fetch_candidates_impl.h"
#include "passes/fetch_choice_impl.h"
#include "passes/loops.h"
#include "passes/passes.h"
#include "passes/reason.h"

namespace kiln {
namespace {

// Rewrites one loop, with `stages` slots.
class Rewriting {
 public:
  Rewriting(Kernel& kernel, RegionId around, OpId loop, const FetchCandidates& candidates,
            int64_t stages)
      : kernel_(kernel),
        around_(around),
        loop_(loop),
        body_(kernel.op(loop).regions[0]),
        candidates_(candidates),
        stages_(stages) {}

  void run() {
    std::vector<OpId> ops;
    ops.swap(kernel_.region(around_).ops);
    Builder build(kernel_, around_);
    for (OpId id : ops) {
      if (id == loop_) {
        build.loc = kernel_.op(id).loc;
        make_channels(build);
        first_rounds(build);
        find_bound(build);
      }
      kernel_.region(around_).ops.push_back(id);
    }
    each_round();
    remove_tiles();
  }

 private:
  static constexpr int64_t kFarthest = int64_t{1} << 30;  // to go on from in i32

  const Op& loop() const { return kernel_.op(loop_); }
  Value index() const { return kernel_.region(body_).args[0]; }

  void make_channels(Builder& build) {
    for (const Fetch& fetch : candidates_.fetches()) {
      const Op& alloc = *kernel_.def_as(fetch.tile, OpCode::Alloc);
      const Type type = kernel_.type(fetch.tile);
      Attrs attrs;
      attrs.set("slots", fetch.staging && fetch.region != body_ ? stages_ - 1 : stages_);
      attrs.set("layout", alloc.word("layout"));
      build.loc = kernel_.op(fetch.copy).loc;
      const OpId channel =
          build.emit(OpCode::Channel, {}, std::move(attrs), Type::channel(type.dtype, type.shape));
      channels_[fetch.copy] = kernel_.op(channel).result;
    }
    build.loc = loop().loc;
  }

  // Rounds 0 to S-2, those that there are. Where the round would be may be beyond i32.
  void first_rounds(Builder& build) {
    if (stages_ == 2) return first_round(build, {});
    Value zero = build.constant(I32, 0), one = build.constant(I32, 1);
    Value count = build.constant(I32, stages_ - 1);
    const RegionId region = build.add_region(build.emit(OpCode::For, {zero, count, one}));
    Value round = kernel_.add_argument(region, Type::scalar(I32));
    Builder::Scope scope(build, region);
    first_round(build, round);
  }
  void first_round(Builder& build, Value round) {
    Value begin = loop().operands[0], end = loop().operands[1], step = loop().operands[2];
    Value at = begin, number = round;
    if (round && constant_int(kernel_, step) != 1) round = build.binary(OpCode::Mul, round, step);
    const auto first = constant_int(kernel_, begin);
    if (round) at = first == 0 ? round : build.binary(OpCode::Add, begin, round);
    // Small numbers stay in i32.
    const bool near = first && distance() && std::abs(*first) <= kFarthest;
    const bool in_i32 = at == begin || near;
    fetch_round(build, in_i32 ? build.compare("lt", at, end) : is_before_end(build, begin, number),
                at);
  }
  // from + rounds · step < end, in 64 bits.
  Value is_before_end(Builder& build, Value from, Value rounds) {
    Value step = build.cast(loop().operands[2], I64);
    Value ahead = build.binary(OpCode::Mul, build.cast(rounds, I64), step);
    Value at = build.binary(OpCode::Add, build.cast(from, I64), ahead);
    return build.compare("lt", at, build.cast(loop().operands[1], I64));
  }

  std::optional<int64_t> distance() const {
    const auto step = constant_int(kernel_, loop().operands[2]);
    if (!step || *step > kFarthest / stages_) return std::nullopt;
    return *step * (stages_ - 1);
  }
  // Surely, by the ops that it is made of.
  bool is_at_most_farthest(Value value) const {
    if (const auto known = constant_int(kernel_, value)) return *known <= kFarthest;
    const OpId def = kernel_.def(value);
    if (!def) return false;
    const Op& op = kernel_.op(def);
    switch (op.code) {
      case OpCode::Cast: {
        const DType from = kernel_.type(op.operands[0]).dtype;
        return !is_float(from) && size_of(from) <= 2;
      }
      case OpCode::FloorDiv: return constant_int(kernel_, op.operands[1]).value_or(1) >= 2;
      case OpCode::Min:
        return is_at_most_farthest(op.operands[0]) || is_at_most_farthest(op.operands[1]);
      default: return false;
    }
  }
  // i + distance < end  ⇔  i < bound, without leaving i32: no index is below the least.
  void find_bound(Builder& build) {
    const auto ahead = distance();
    if (!ahead) return;
    distance_ = build.constant(I32, *ahead);
    if (is_at_most_farthest(loop().operands[1])) return;
    constexpr int64_t kLeast = std::numeric_limits<int32_t>::min();
    if (auto end = constant_int(kernel_, loop().operands[1])) {
      bound_ = build.constant(I32, std::max(*end, kLeast + *ahead) - *ahead);
      return;
    }
    Value least = build.constant(I32, kLeast + *ahead);
    Value end = build.binary(OpCode::Max, loop().operands[1], least);
    bound_ = build.binary(OpCode::Sub, end, distance_);
  }

  // if is_round { all fetches of the round with index `at` }; commit_copies
  void fetch_round(Builder& build, Value is_round, Value at) {
    const RegionId region = build.add_region(build.emit(OpCode::If, {is_round}));
    {
      Builder::Scope scope(build, region);
      ValueMap names{{index().id, at}};
      fetch_region(build, body_, names);
    }
    build.loc = loop().loc;
    if (any_async()) build.emit(OpCode::CommitCopies, {});
  }
  void fetch_region(Builder& build, RegionId from, ValueMap& names) {
    for (OpId id : std::vector<OpId>(original(from))) {
      build.loc = kernel_.op(id).loc;
      if (channels_.contains(id)) {
        fetch(build, id, names);
      } else if (candidates_.guards(id)) {
        Value condition = mapped(names, kernel_.op(id).operands[0]);
        const RegionId into = build.add_region(build.emit(OpCode::If, {condition}));
        Builder::Scope scope(build, into);
        fetch_region(build, kernel_.op(id).regions[0], names);
        if (auto loaded = loaded_.find(kernel_.op(id).regions[0].id); loaded != loaded_.end())
          build.store(build.constant(Bool, 1), loaded->second);
      } else if (candidates_.needs(id)) {
        clone_op(kernel_, id, build.region(), names);
      }
    }
  }
  // As it was before the rounds were rewritten.
  const std::vector<OpId>& original(RegionId region) {
    auto [found, is_new] = originals_.try_emplace(region.id);
    if (is_new) found->second = kernel_.region(region).ops;
    return found->second;
  }
  void fetch(Builder& build, OpId id, const ValueMap& names) {
    const Op copy = kernel_.op(id);
    Value source = mapped(names, copy.operands[0]);
    std::string reason = fmt::format("{}; fetched {} round{} ahead", copy.word("reason"),
                                     stages_ - 1, stages_ == 2 ? "" : "s");
    if (copy.word("instruction") == "cp_async") {
      Attrs attrs;
      attrs.set("reason", std::move(reason));
      return push(build, id, OpCode::CopyAsync, source, std::move(attrs));
    }
    Attrs attrs = copy.attrs;
    const auto fragment = fragments_.find(id);
    if (fragment == fragments_.end())
      return push(build, id, OpCode::Copy, source, std::move(attrs));
    const Op& alloc = *kernel_.def_as(fragment->second, OpCode::Alloc);
    attrs.set("reason",
              fmt::format("{} through {} registers", reason,
                          registers_of(kernel_.type(fragment->second).dtype, *layout_of(alloc))));
    build.emit(OpCode::Copy, {source, fragment->second}, std::move(attrs));
  }
  void push(Builder& build, OpId id, OpCode by, Value source, Attrs attrs) {
    Value channel = channels_.at(id);
    const Type& type = kernel_.type(channel);
    const Type slot_type = Type::tile(Space::Shared, type.dtype, type.shape);
    Value slot = kernel_.op(build.emit(OpCode::PushBegin, {channel}, {}, slot_type)).result;
    build.emit(by, {source, slot}, std::move(attrs));
    build.emit(OpCode::PushEnd, {channel, slot});
  }

  void each_round() {
    std::vector<RegionId> regions;
    for (const Fetch& fetch : candidates_.fetches())
      if (std::find(regions.begin(), regions.end(), fetch.region) == regions.end())
        regions.push_back(fetch.region);
    // A pop in a guard comes after the round's own commit_copies.
    for (RegionId region : regions)
      use_slots(region, !any_async() ? 0 : region == body_ ? stages_ - 2 : stages_ - 1);
    std::vector<OpId> rest;
    rest.swap(kernel_.region(body_).ops);
    Builder build(kernel_, body_);
    build.loc = loop().loc;
    auto begin = rest.begin();
    for (; begin != rest.end() && kernel_.op(*begin).code == OpCode::Pop; ++begin)
      kernel_.region(body_).ops.push_back(*begin);
    auto releases = rest.end();
    while (releases != begin && kernel_.op(*std::prev(releases)).code == OpCode::Release)
      --releases;
    make_fragments(build, regions);
    fetch_ahead(build);
    const auto append = [&](auto from, auto to) {
      auto& ops = kernel_.region(body_).ops;
      ops.insert(ops.end(), from, to);
    };
    append(begin, releases);
    push_fragments(build, body_);
    append(releases, rest.end());
    for (RegionId region : regions)
      if (region != body_) push_fragments(build, region);
  }

  bool any_async() const {
    return std::any_of(candidates_.fetches().begin(), candidates_.fetches().end(),
                       [](const Fetch& fetch) { return !fetch.staging; });
  }
  // For what is loaded at the top of a round; and for guarded regions of the loop, whether it is.
  void make_fragments(Builder& build, const std::vector<RegionId>& regions) {
    for (const Fetch& fetch : candidates_.fetches()) {
      if (!fetch.staging) continue;
      const Type from = kernel_.type(kernel_.op(fetch.copy).operands[0]);
      build.loc = kernel_.op(fetch.copy).loc;
      Value fragment = build.alloc(Space::Fragment, from.dtype, kernel_.type(fetch.tile).shape);
      set_layout(kernel_.op(kernel_.def(fragment)), *fetch.staging);
      fragments_[fetch.copy] = fragment;
    }
    build.loc = loop().loc;
    for (RegionId region : regions) {
      if (region == body_ || staged(region).empty()) continue;
      Value loaded = build.alloc(Space::Fragment, Bool, {});
      build.store(build.constant(Bool, 0), loaded);
      loaded_[region.id] = loaded;
    }
  }
  std::vector<OpId> staged(RegionId region) const {
    std::vector<OpId> copies;
    for (const Fetch& fetch : candidates_.fetches())
      if (fetch.staging && fetch.region == region) copies.push_back(fetch.copy);
    return copies;
  }
  void push_fragments(Builder& build, RegionId region) {
    const std::vector<OpId> copies = staged(region);
    if (copies.empty()) return;
    build.loc = loop().loc;
    Value condition = region == body_ ? is_round_ : build.load(loaded_.at(region.id));
    const RegionId into = build.add_region(build.emit(OpCode::If, {condition}));
    Builder::Scope scope(build, into);
    for (OpId copy : copies) {
      build.loc = kernel_.op(copy).loc;
      push(build, copy, OpCode::Copy, fragments_.at(copy), {});
    }
  }

  void fetch_ahead(Builder& build) {
    Value at;
    if (distance_) {
      at = build.binary(OpCode::Add, index(), distance_);
      is_round_ = bound_ ? build.compare("lt", index(), bound_)
                         : build.compare("lt", at, loop().operands[1]);
    } else {
      Value rounds = build.constant(I32, stages_ - 1);
      at =
          build.binary(OpCode::Add, index(), build.binary(OpCode::Mul, rounds, loop().operands[2]));
      is_round_ = is_before_end(build, index(), rounds);
    }
    fetch_round(build, is_round_, at);
  }

  // Pops at the top of the region, slots instead of the tiles, releases at its end. At least
  // `pending` groups of copies were closed since those of a slot.
  void use_slots(RegionId region, int64_t pending) {
    inside_.clear();
    walk(kernel_, region, [&](OpId id) { inside_.insert(id); });
    std::vector<OpId> ops;
    ops.swap(kernel_.region(region).ops);
    Builder build(kernel_, region);
    std::vector<std::pair<Value, Value>> held;  // channels and slots
    ValueMap names;
    for (const Fetch& fetch : candidates_.fetches()) {
      if (fetch.region != region) continue;
      Value channel = channels_.at(fetch.copy);
      const Type& type = kernel_.type(channel);
      Attrs attrs;
      if (pending > 0) attrs.set("pending", pending);
      build.loc = kernel_.op(fetch.copy).loc;
      const Type slot_type = Type::tile(Space::Shared, type.dtype, type.shape);
      const OpId pop = build.emit(OpCode::Pop, {channel}, std::move(attrs), slot_type);
      names[fetch.tile.id] = kernel_.op(pop).result;
      held.push_back({channel, kernel_.op(pop).result});
    }
    for (OpId id : ops)
      if (!channels_.contains(id)) copy_views(build, id, names);
    for (OpId id : ops)
      if (!channels_.contains(id)) kernel_.region(region).ops.push_back(id);
    use_names(region, names);
    build.loc = loop().loc;
    for (const auto& [channel, slot] : held) build.emit(OpCode::Release, {channel, slot});
  }
  // Views of the tiles that were made outside of the region: of the slots instead.
  void copy_views(Builder& build, OpId id, ValueMap& names) {
    const std::vector<Value> operands = kernel_.op(id).operands;
    for (Value operand : operands)
      if (operand) copy_view(build, operand, names);
    for (RegionId inner : std::vector<RegionId>(kernel_.op(id).regions))
      for (OpId deep : std::vector<OpId>(kernel_.region(inner).ops)) copy_views(build, deep, names);
  }
  void copy_view(Builder& build, Value view, ValueMap& names) {
    const Op* slice = kernel_.def_as(view, OpCode::Slice);
    if (!slice || names.contains(view.id) || !names.contains(base_of(kernel_, view).id)) return;
    if (inside_.contains(kernel_.def(view))) return;
    copy_view(build, slice->operands[0], names);
    clone_op(kernel_, kernel_.def(view), build.region(), names);
  }
  void use_names(RegionId region, const ValueMap& names) {
    walk(kernel_, region, [&](OpId id) {
      for (Value& operand : kernel_.op(id).operands)
        if (operand) operand = mapped(names, operand);
    });
  }

  // The tiles, and what is left of views of them.
  void remove_tiles() {
    std::set<Value> gone;
    for (const Fetch& fetch : candidates_.fetches()) gone.insert(fetch.tile);
    walk_regions(kernel_, kernel_.body, [&](RegionId region) {
      std::erase_if(kernel_.region(region).ops, [&](OpId id) {
        const Value result = kernel_.op(id).result;
        return result && gone.contains(base_of(kernel_, result));
      });
    });
  }

  Kernel& kernel_;
  const RegionId around_;
  const OpId loop_;
  const RegionId body_;
  const FetchCandidates& candidates_;
  const int64_t stages_;
  std::map<OpId, Value> channels_;    // by copy
  std::map<OpId, Value> fragments_;   // by copy: those that wait in registers
  std::map<uint32_t, Value> loaded_;  // by guarded region: were they, this round?
  std::set<OpId> inside_;             // the ops of the region that is being rewritten
  std::unordered_map<uint32_t, std::vector<OpId>> originals_;
  Value distance_;  // of the fetched round's index; none if the step is not known
  Value is_round_;  // is there one to fetch for?
  Value bound_;     // the rounds below it have one to fetch for; none if these can be counted
};

void note(Kernel& kernel, const FetchCandidates& candidates) {
  for (const auto& [id, why] : candidates.declined())
    add_reason(kernel.op(id), "not fetched ahead: " + why);
}

void fetch_ahead(Kernel& kernel, OpId launch, const PlacedLoop& found) {
  const FetchChoice choice(
      kernel, launch, found.loop, [&](const FetchCandidates& candidates, int64_t slots) {
        Kernel attempt = kernel;
        note(attempt, candidates);
        if (slots >= 2) Rewriting(attempt, found.around, found.loop, candidates, slots).run();
        return attempt;
      });
  kernel = choice.kernel();
  kernel.op(found.loop).attrs.set("reason", choice.reason());
}

}  // namespace

void make_async(Kernel& kernel) {
  for (OpId id : std::vector<OpId>(kernel.region(kernel.body).ops)) {
    if (kernel.op(id).code != OpCode::Launch) continue;
    // Loops inside first: what they fetch does not concern those around.
    const auto asks = [](const Op& op) {
      return op.word("kind") == "pipelined" && op.integer("stages") >= 2;
    };
    for (const PlacedLoop& found : loops_of(kernel, id, asks)) fetch_ahead(kernel, id, found);
  }
}

}  // namespace kiln
