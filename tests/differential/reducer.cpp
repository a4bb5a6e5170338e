#include "tests/differential/reducer.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>

#include "ir/builder.h"
#include "ir/error.h"
#include "ir/verify.h"
#include "ir/walk.h"
#include "tests/differential/shrink.h"

namespace kiln::differential {
namespace {

// Where an op stands.
struct Place {
  RegionId region;
  OpId op;
};

std::vector<Place> places(const Kernel& kernel) {
  std::vector<Place> found;
  auto visit = [&](auto&& self, RegionId region) -> void {
    for (OpId id : kernel.region(region).ops) {
      found.push_back({region, id});
      for (RegionId inner : kernel.op(id).regions) self(self, inner);
    }
  };
  visit(visit, kernel.body);
  return found;
}

bool legal(const Kernel& kernel) {
  try {
    verify(kernel);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void erase(Kernel& kernel, const std::set<OpId>& gone) {
  walk_regions(kernel, kernel.body, [&](RegionId region) {
    std::erase_if(kernel.region(region).ops, [&](OpId id) { return gone.contains(id); });
  });
}

// Results that nobody uses go. Not the interface, which decides what inputs there are.
void clean(Kernel& kernel) {
  for (bool progress = true; progress;) {
    const std::vector<int> uses = use_counts(kernel);
    std::set<OpId> gone;
    for (const Place& place : places(kernel)) {
      const Op& op = kernel.op(place.op);
      const OpInfo& row = info(op.code);
      const bool removable = row.pure || op.code == OpCode::Alloc || op.code == OpCode::Load;
      if (op.result && uses[op.result.id] == 0 && removable) gone.insert(place.op);
    }
    erase(kernel, gone);
    progress = !gone.empty();
  }
}

// Does removing it take anything but a value away?
bool has_effect(const Op& op) {
  return !info(op.code).top && (!op.result || op.code == OpCode::Atomic);
}

class Reducer {
 public:
  Reducer(const Program& program, const std::function<bool(const Program&)>& fails)
      : best_(program), fails_(fails) {}

  Program run() {
    do {
      progress_ = false;
      remove_statements();
      each_place([&](const Place& place) { simplify_structure(place); });
      each_place([&](const Place& place) { simplify_value(place); });
      each_place([&](const Place& place) { simplify_attributes(place); });
      simplify_run();
      shrink();
    } while (progress_);
    return best_;
  }

 private:
  // Takes the candidate if it is legal and still fails.
  bool take(Program candidate) {
    clean(candidate.kernel);
    if (!legal(candidate.kernel) || !fails_(candidate)) return false;
    best_ = std::move(candidate);
    return progress_ = true;
  }
  bool take(Kernel kernel) { return take({std::move(kernel), best_.dims, best_.any_bits}); }

  Kernel& kernel() { return best_.kernel; }

  // The last ops first: nothing depends on them. Ops keep their numbers while others go.
  template <class Visit>
  void each_place(Visit&& visit) {
    std::vector<Place> all = places(kernel());
    for (size_t i = all.size(); i-- > 0;)
      if (is_there(all[i])) visit(all[i]);
  }
  bool is_there(const Place& place) {
    for (const Place& now : places(kernel()))
      if (now.region == place.region && now.op == place.op) return true;
    return false;
  }

  // Whole statements, many at once first.
  void remove_statements() {
    auto statements = [&] {
      std::vector<OpId> all;
      for (const Place& place : places(kernel()))
        if (has_effect(kernel().op(place.op)) || kernel().op(place.op).code == OpCode::Launch)
          all.push_back(place.op);
      return all;
    };
    for (size_t chunk = std::max<size_t>(1, statements().size() / 2); chunk > 0; chunk /= 2) {
      std::vector<OpId> all = statements();
      for (size_t end = all.size(); end > 0;) {
        const size_t begin = end > chunk ? end - chunk : 0;
        take(without({all.begin() + static_cast<std::ptrdiff_t>(begin),
                      all.begin() + static_cast<std::ptrdiff_t>(end)}));
        end = begin;
      }
    }
  }

  // A scalar result of a removed op becomes 1.
  Kernel without(const std::set<OpId>& ops) {
    Kernel smaller = kernel();
    for (OpId id : ops)
      if (Value result = smaller.op(id).result) replace(smaller, id, 1);
    erase(smaller, ops);
    return smaller;
  }

  // Puts a constant in front of an op and in its place.
  static void replace(Kernel& kernel, OpId id, int64_t number) {
    for (const Place& place : places(kernel)) {
      if (place.op != id) continue;
      const Value result = kernel.op(id).result;
      RegionId scratch = kernel.new_region();
      Builder builder(kernel, scratch);
      Value constant = builder.constant(Scalar::of_int(I32, number));
      if (kernel.type(result).dtype != I32) {
        const Scalar value = convert(Scalar::of_int(I32, number), kernel.type(result).dtype);
        kernel.region(scratch).ops.clear();
        constant = builder.constant(value);
      }
      auto& ops = kernel.region(place.region).ops;
      ops.insert(std::find(ops.begin(), ops.end(), id), kernel.region(scratch).ops[0]);
      replace_uses(kernel, {{result.id, constant}});
      return;
    }
  }

  // A loop or branch: the ops of one of its regions alone, or one round.
  void simplify_structure(const Place& place) {
    if (kernel().op(place.op).code == OpCode::Launch) return drop_axes(place);
    const size_t regions = kernel().op(place.op).regions.size();
    for (size_t which = 0; which < regions; ++which)
      for (const Exits exits : {Exits::Gone, Exits::Taken})
        if (auto smaller = inlined(place, which, exits); smaller && take(*smaller)) return;
    if (kernel().op(place.op).code != OpCode::For) return;
    Kernel smaller = kernel();
    RegionId scratch = smaller.new_region();
    Builder builder(smaller, scratch);
    const std::vector<Value> bounds = {builder.constant(I32, 0), builder.constant(I32, 1),
                                       builder.constant(I32, 1)};
    if (smaller.op(place.op).operands.size() != bounds.size()) return;
    smaller.op(place.op).operands = bounds;
    auto& ops = smaller.region(place.region).ops;
    const auto& inner = smaller.region(scratch).ops;
    ops.insert(std::find(ops.begin(), ops.end(), place.op), inner.begin(), inner.end());
    if (!is_single(place)) take(smaller);
  }
  // Of the grid, the last axes; their index is 0.
  void drop_axes(const Place& place) {
    while (kernel().op(place.op).operands.size() > 1) {
      Kernel smaller = kernel();
      Op& launch = smaller.op(place.op);
      RegionId body = launch.regions[0], scratch = smaller.new_region();
      const Value index = smaller.region(body).args.back();
      smaller.region(body).args.pop_back();
      launch.operands.pop_back();
      const Value zero = Builder(smaller, scratch).constant(I32, 0);
      auto& ops = smaller.region(body).ops;
      ops.insert(ops.begin(), smaller.region(scratch).ops[0]);
      replace_uses(smaller, {{index.id, zero}});
      if (!take(std::move(smaller))) return;
    }
  }
  bool is_single(const Place& place) {
    const Op& op = kernel().op(place.op);
    return constant_int(kernel(), op.operands[0]) == 0 &&
           constant_int(kernel(), op.operands[1]) == 1;
  }

  enum class Exits { Gone, Taken };  // of a loop: they leave nothing, or what they do

  std::optional<Kernel> inlined(const Place& place, size_t which, Exits exits) {
    const OpCode code = kernel().op(place.op).code;
    const bool structure = code == OpCode::For || code == OpCode::Selected || code == OpCode::If ||
                           code == OpCode::Loop;
    if (!structure) return std::nullopt;
    Kernel smaller = kernel();
    RegionId body = smaller.op(place.op).regions[which], straight = smaller.new_region();
    if (exits == Exits::Taken && code != OpCode::Loop) return std::nullopt;
    std::vector<OpId> rest;
    for (OpId id : smaller.region(body).ops) {
      if (smaller.op(id).code != OpCode::ExitIf) {
        rest.push_back(id);
      } else if (exits == Exits::Taken) {
        const auto& leaving = smaller.region(smaller.op(id).regions[0]).ops;
        rest.insert(rest.end(), leaving.begin(), leaving.end());
      }
    }
    smaller.region(body).ops = std::move(rest);
    Builder builder(smaller, straight);
    ValueMap map;
    for (Value arg : std::vector<Value>(smaller.region(body).args))
      map[arg.id] = builder.constant(I32, 0);
    clone_body(smaller, body, straight, map);
    auto& ops = smaller.region(place.region).ops;
    const auto& inner = smaller.region(straight).ops;
    auto at = ops.erase(std::find(ops.begin(), ops.end(), place.op));
    ops.insert(at, inner.begin(), inner.end());
    return smaller;
  }

  // A scalar: one of its operands, or 0 or 1. A view: what it is of.
  void simplify_value(const Place& place) {
    const Op op = kernel().op(place.op);
    if (!op.result || op.code == OpCode::Const || op.code == OpCode::Alloc) return;
    if (place.region == kernel().body) return;
    for (Value operand : op.operands) {
      if (!operand || !is_alike(operand, op.result)) continue;
      Kernel smaller = kernel();
      replace_uses(smaller, {{op.result.id, operand}});
      erase(smaller, {place.op});
      if (take(std::move(smaller))) return;
    }
    if (op.code == OpCode::Reshape) take(with_tile_of_its_own(place));
    if (!kernel().type(op.result).is_scalar()) return;
    for (int64_t number : {0, 1}) {
      Kernel smaller = kernel();
      replace(smaller, place.op, number);
      if (op.code != OpCode::Atomic) erase(smaller, {place.op});
      if (op.code != OpCode::Atomic || use_counts(kernel())[op.result.id] > 0)
        if (take(std::move(smaller))) return;
    }
  }
  Kernel with_tile_of_its_own(const Place& place) {
    Kernel smaller = kernel();
    const Value old = smaller.op(place.op).result;
    const Type type = smaller.type(old);
    const RegionId scratch = smaller.new_region();
    const Value made = Builder(smaller, scratch).alloc(type.space, type.dtype, type.shape);
    auto& ops = smaller.region(place.region).ops;
    *std::find(ops.begin(), ops.end(), place.op) = smaller.region(scratch).ops[0];
    replace_uses(smaller, {{old.id, made}});
    return smaller;
  }
  bool is_alike(Value a, Value b) {
    const Type &x = kernel().type(a), &y = kernel().type(b);
    return x.dtype == y.dtype && x.shape == y.shape && x.is_scalar() == y.is_scalar();
  }

  void simplify_attributes(const Place& place) {
    const Op op = kernel().op(place.op);
    for (const AttrInfo& attr : info(op.code).attrs) {
      if (!attr.default_value || !op.attrs.find(attr.name)) continue;
      Kernel smaller = kernel();
      smaller.op(place.op).attrs.erase(attr.name);
      take(std::move(smaller));
    }
  }

  // How it is run, and interface that is not used.
  void simplify_run() {
    if (best_.any_bits) take(Program{kernel(), best_.dims, false});
    leave_out_less();
    if (kernel().fast_math) {
      Kernel smaller = kernel();
      smaller.fast_math = false;
      take(std::move(smaller));
    }
    for (const auto& [name, value] : std::map<std::string, int64_t>(best_.dims))
      for (int64_t less : {int64_t{0}, int64_t{1}, value / 2, value - 1}) {
        if (less < 0 || less >= value) continue;
        Program smaller = best_;
        smaller.dims[name] = less;
        if (take(std::move(smaller))) break;
      }
    each_place([&](const Place& place) {
      const Op& op = kernel().op(place.op);
      if (place.region != kernel().body || !op.result || use_counts(kernel())[op.result.id] > 0)
        return;
      Kernel smaller = kernel();
      erase(smaller, {place.op});
      take(std::move(smaller));
    });
  }

  void leave_out_less() {
    std::istringstream in(kernel().without);
    const std::vector<std::string> all(std::istream_iterator<std::string>(in), {});
    for (const std::string& pass : all) {
      Kernel smaller = kernel();
      smaller.without = "";
      std::istringstream now(kernel().without);
      for (std::string other; now >> other;)
        if (other != pass) smaller.without += (smaller.without.empty() ? "" : " ") + other;
      take(std::move(smaller));
    }
  }

  void shrink() {
    for (const auto& change : shrinkings(kernel()))
      if (std::optional<Kernel> smaller = change(kernel())) take(std::move(*smaller));
  }

  Program best_;
  const std::function<bool(const Program&)>& fails_;
  bool progress_ = false;
};

}  // namespace

Program reduce(const Program& program, const std::function<bool(const Program&)>& fails) {
  return Reducer(program, fails).run();
}

}  // namespace kiln::differential
