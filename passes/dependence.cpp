#include "passes/dependence.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/walk.h"

namespace kiln {
namespace {

bool writes(Effect effect) {
  return effect == Effect::Write || effect == Effect::Update;
}
bool reads(Effect effect) {
  return effect == Effect::Read || effect == Effect::Update;
}

// Does the op, or one in its regions, name the value?
bool names(const Kernel& kernel, const Op& op, Value value) {
  const auto in = [&](const Op& each) {
    return std::find(each.operands.begin(), each.operands.end(), value) != each.operands.end();
  };
  bool found = in(op);
  for (RegionId region : op.regions)
    walk(kernel, region, [&](OpId id) { found |= in(kernel.op(id)); });
  return found;
}

}  // namespace

std::string op_in_words(const Op& op) {
  const std::string_view name = info(op.code).name;
  return op.loc.known() ? fmt::format("{} on line {}", name, op.loc.line) : std::string(name);
}

std::string storage_in_words(const Kernel& kernel, Value base) {
  const Type& type = kernel.type(base);
  if (const Op* tensor = kernel.def_as(base, OpCode::Tensor))
    return fmt::format("tensor '{}'", tensor->word("name"));
  return type.rank() == 0 ? "a scalar variable" : fmt::format("a tile, {}", str(type));
}

std::optional<Dependence> dependence(const Kernel& kernel, const Op& earlier, const Op& later,
                                     const std::set<Value>& but) {
  using Kind = Dependence::Kind;
  if (earlier.result && names(kernel, later, earlier.result))
    return Dependence{Kind::Value, earlier.result};
  const std::vector<Access> after = accesses_deep(kernel, later);
  for (const Access& a : accesses_deep(kernel, earlier))
    for (const Access& b : after) {
      if (a.base != b.base || but.contains(a.base)) continue;
      if (writes(a.effect) && reads(b.effect)) return Dependence{Kind::ReadAfterWrite, a.base};
      if (reads(a.effect) && writes(b.effect)) return Dependence{Kind::WriteAfterRead, a.base};
      if (writes(a.effect) && writes(b.effect)) return Dependence{Kind::WriteAfterWrite, a.base};
    }
  return std::nullopt;
}

Effects::Effects(const Kernel& kernel, const Op& op) {
  const auto note = [&](const Op& each) {
    for (const Access& access : accesses(kernel, each)) {
      Use& use = uses_[access.base.id];
      ++use.count;
      if (writes(access.effect)) use.writer = &each;
    }
  };
  note(op);
  for (RegionId region : op.regions) walk(kernel, region, [&](OpId id) { note(kernel.op(id)); });
}

const Op* Effects::writer(Value base) const {
  const auto found = uses_.find(base.id);
  return found == uses_.end() ? nullptr : found->second.writer;
}

int Effects::uses(Value base) const {
  const auto found = uses_.find(base.id);
  return found == uses_.end() ? 0 : found->second.count;
}

RoundSlice::RoundSlice(const Kernel& kernel, const Op& loop, const Effects& effects)
    : kernel_(kernel), effects_(effects), arguments_(kernel.value_count(), false) {
  walk(kernel, loop.regions[0], [&](OpId id) {
    if (inside_.size() <= id.id) inside_.resize(id.id + 1, false);
    inside_[id.id] = true;
    for (RegionId region : kernel.op(id).regions)
      for (Value argument : kernel.region(region).args) arguments_[argument.id] = true;
  });
  needed_.assign(inside_.size(), false);
}

std::string RoundSlice::add(Value value) {
  if (arguments_[value.id]) return "the index of a loop inside";
  const OpId id = kernel_.def(value);
  if (!id || id.id >= inside_.size() || !inside_[id.id] || needed_[id.id]) return "";
  const Op& op = kernel_.op(id);
  if (std::string why = why_not(op); !why.empty()) return why;
  for (Value operand : op.operands)
    if (operand)
      if (std::string why = add(operand); !why.empty()) return why;
  needed_[id.id] = true;
  return "";
}

std::string RoundSlice::why_not(const Op& op) const {
  if (op.code == OpCode::Load) {
    const Value base = base_of(kernel_, op.operands[0]);
    const Op* writer = effects_.writer(base);
    if (!writer) return "";
    return fmt::format("{} that the loop's {} writes", storage_in_words(kernel_, base),
                       op_in_words(*writer));
  }
  if (info(op.code).pure) return "";
  return "the " + op_in_words(op);
}

}  // namespace kiln
