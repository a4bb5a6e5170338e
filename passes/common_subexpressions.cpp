#include <bit>
#include <unordered_map>

#include "passes/passes.h"
#include "passes/rewrite.h"

namespace kiln {
namespace {

// Numbers are equal if their bits are: −0 is not 0.
bool same(const AttrValue& a, const AttrValue& b) {
  auto *x = std::get_if<double>(&a), *y = std::get_if<double>(&b);
  if (x && y) return std::bit_cast<uint64_t>(*x) == std::bit_cast<uint64_t>(*y);
  return a == b;
}

bool same(const Attrs& a, const Attrs& b) {
  if (a.entries().size() != b.entries().size()) return false;
  for (size_t i = 0; i < a.entries().size(); ++i) {
    const auto& [name, value] = a.entries()[i];
    const auto& [other_name, other] = b.entries()[i];
    if (name != other_name || !same(value, other)) return false;
  }
  return true;
}

class Merger {
 public:
  explicit Merger(Kernel& kernel) : kernel_(kernel) {}

  // An op sees those above it in its region and in the regions around it, which dominate it.
  void region(RegionId id) {
    std::vector<OpId> kept;
    std::vector<uint64_t> added;
    for (OpId op_id : kernel_.region(id).ops) {
      Op& op = kernel_.op(op_id);
      for (Value& operand : op.operands) operand = renamed(names_, operand);
      if (info(op.code).pure) {
        uint64_t key = hash(op);
        if (const Op* earlier = find(key, op)) {
          names_[op.result.id] = earlier->result;
          continue;
        }
        seen_[key].push_back(op_id);
        added.push_back(key);
      }
      kept.push_back(op_id);
      for (RegionId inner : op.regions) region(inner);
    }
    for (uint64_t key : added) seen_[key].pop_back();
    kernel_.region(id).ops = std::move(kept);
  }

 private:
  uint64_t hash(const Op& op) const {
    uint64_t value = static_cast<uint64_t>(op.code);
    for (Value operand : op.operands) value = (value ^ operand.id) * 0x9e3779b97f4a7c15;
    if (op.code != OpCode::Const) return value;
    Scalar number = constant_value(kernel_, op);
    return (value ^ static_cast<uint64_t>(number.i)) * 0x9e3779b97f4a7c15;
  }

  const Op* find(uint64_t key, const Op& op) const {
    auto found = seen_.find(key);
    if (found == seen_.end()) return nullptr;
    for (OpId id : found->second) {
      const Op& other = kernel_.op(id);
      if (other.code == op.code && other.operands == op.operands && same(other.attrs, op.attrs) &&
          kernel_.type(other.result) == kernel_.type(op.result))
        return &other;
    }
    return nullptr;
  }

  Kernel& kernel_;
  ValueMap names_;
  std::unordered_map<uint64_t, std::vector<OpId>> seen_;
};

}  // namespace

void common_subexpressions(Kernel& kernel) {
  Merger(kernel).region(kernel.body);
}

}  // namespace kiln
