// Shapes of programs, and what a share of them must have.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "ir/walk.h"
#include "tests/differential/occurrences.h"

namespace kiln::differential {
namespace {

bool is_pipelined(const Op& op) {
  return op.code == OpCode::Selected || (op.code == OpCode::For && op.word("kind") == "pipelined");
}

bool any_inside(const Kernel& kernel, const Op& op, const std::function<bool(const Op&)>& is) {
  bool found = false;
  for (RegionId region : op.regions)
    walk(kernel, region, [&](OpId id) { found = found || is(kernel.op(id)); });
  return found;
}

bool any(const Kernel& kernel, const std::function<bool(const Op&)>& is) {
  bool found = false;
  walk(kernel, kernel.body, [&](OpId id) { found = found || is(kernel.op(id)); });
  return found;
}

bool is_store(const Op& op) {
  return op.code == OpCode::Store || op.code == OpCode::Atomic || op.code == OpCode::Scatter;
}

bool has_siblings(const Kernel& kernel) {
  bool found = false;
  walk_regions(kernel, kernel.body, [&](RegionId region) {
    const auto& ops = kernel.region(region).ops;
    found |= std::count_if(ops.begin(), ops.end(),
                           [&](OpId id) { return is_pipelined(kernel.op(id)); }) > 1;
  });
  return found;
}

// A copy from global memory to what earlier ops of a pipelined loop's round read.
bool overwrites_what_it_read(const Kernel& kernel, const Op& loop) {
  if (!is_pipelined(loop)) return false;
  std::vector<Value> read;
  for (OpId id : kernel.region(loop.regions[0]).ops) {
    const Op& op = kernel.op(id);
    const bool global =
        op.code == OpCode::Copy && kernel.type(op.operands[0]).space == Space::Global;
    if (global &&
        std::find(read.begin(), read.end(), base_of(kernel, op.operands[1])) != read.end())
      return true;
    for (const Access& access : accesses_deep(kernel, op))
      if (access.effect != Effect::Write) read.push_back(access.base);
  }
  return false;
}

// Shared tiles of a lowered kernel that lie where another lies too.
int most_aliases(const Kernel& kernel) {
  struct Place {
    int64_t begin, end;
  };
  int most = 0;
  for (OpId launch : kernel.region(kernel.body).ops) {
    std::vector<Place> places;
    for (RegionId region : kernel.op(launch).regions)
      walk(kernel, region, [&](OpId id) {
        const Op& op = kernel.op(id);
        if (op.code != OpCode::Alloc || kernel.type(op.result).space != Space::Shared) return;
        const Type& type = kernel.type(op.result);
        const int64_t at = op.integer("offset");
        places.push_back(
            {at, at + kiln::count(type.shape) * static_cast<int64_t>(size_of(type.dtype))});
      });
    int aliases = 0;
    for (size_t i = 0; i < places.size(); ++i)
      for (size_t j = 0; j < places.size(); ++j)
        if (i != j && places[i].begin < places[j].end && places[j].begin < places[i].end) {
          ++aliases;
          break;
        }
    most = std::max(most, aliases);
  }
  return most;
}

struct ProgramShape {
  const char* name;
  std::function<bool(const Kernel&)> holds;
};

int tensors(const Kernel& kernel, std::string_view role) {
  int number = 0;
  walk(kernel, kernel.body, [&](OpId id) {
    const Op& op = kernel.op(id);
    number += op.code == OpCode::Tensor && op.word("role") == role;
  });
  return number;
}

int launches(const Kernel& kernel) {
  const auto& ops = kernel.region(kernel.body).ops;
  return static_cast<int>(std::count_if(
      ops.begin(), ops.end(), [&](OpId id) { return kernel.op(id).code == OpCode::Launch; }));
}

const std::vector<ProgramShape>& shapes() {
  static const std::vector<ProgramShape> table = {
      {"several launches", [](const Kernel& k) { return launches(k) > 1; }},
      {"a workspace of several launches",
       [](const Kernel& k) { return launches(k) > 1 && tensors(k, "workspace") > 0; }},
      {"several outputs",
       [](const Kernel& k) { return tensors(k, "output") + tensors(k, "inout") > 1; }},
      {"pipelined loops in each other",
       [](const Kernel& k) {
         return any(
             k, [&](const Op& op) { return is_pipelined(op) && any_inside(k, op, is_pipelined); });
       }},
      {"pipelined loops one after the other", has_siblings},
      {"a pipelined loop under a branch",
       [](const Kernel& k) {
         return any(k, [&](const Op& op) {
           return op.code == OpCode::If && any_inside(k, op, is_pipelined);
         });
       }},
      {"a pipelined loop in a loop with exits",
       [](const Kernel& k) {
         return any(k, [&](const Op& op) {
           return op.code == OpCode::Loop && any_inside(k, op, is_pipelined);
         });
       }},
      {"a branch in a pipelined loop",
       [](const Kernel& k) {
         return any(k, [&](const Op& op) {
           return is_pipelined(op) &&
                  any_inside(k, op, [](const Op& in) { return in.code == OpCode::If; });
         });
       }},
      {"an atomic in a pipelined loop",
       [](const Kernel& k) {
         return any(k, [&](const Op& op) {
           return is_pipelined(op) &&
                  any_inside(k, op, [](const Op& in) { return in.code == OpCode::Atomic; });
         });
       }},
      {"a copy over what a round has read",
       [](const Kernel& k) {
         return any(k, [&](const Op& op) { return overwrites_what_it_read(k, op); });
       }},
      {"an atomic of a tensor",
       [](const Kernel& k) {
         return any(k, [&](const Op& op) {
           return op.code == OpCode::Atomic &&
                  k.type(base_of(k, op.operands[1])).space == Space::Global;
         });
       }},
      {"an atomic of a shared tile",
       [](const Kernel& k) {
         return any(k, [&](const Op& op) {
           return op.code == OpCode::Atomic &&
                  k.type(base_of(k, op.operands[1])).space == Space::Shared;
         });
       }},
      {"an atomic's old value used",
       [](const Kernel& k) {
         const std::vector<int> uses = use_counts(k);
         return any(
             k, [&](const Op& op) { return op.code == OpCode::Atomic && uses[op.result.id] > 0; });
       }},
      {"two gemms into one fragment",
       [](const Kernel& k) {
         std::vector<Value> into;
         walk(k, k.body, [&](OpId id) {
           if (k.op(id).code == OpCode::Gemm) into.push_back(k.op(id).operands[2]);
         });
         std::sort(into.begin(), into.end());
         return std::adjacent_find(into.begin(), into.end()) != into.end();
       }},
  };
  return table;
}

}  // namespace

Occurrences shapes_of(const Kernel& kernel) {
  Occurrences found;
  for (const ProgramShape& shape : shapes())
    if (shape.holds(kernel)) found.insert(fmt::format("shape: {}", shape.name));
  return found;
}

std::vector<std::string> all_shapes() {
  std::vector<std::string> all;
  for (const ProgramShape& shape : shapes()) all.push_back(fmt::format("shape: {}", shape.name));
  return all;
}

const std::vector<Share>& all_shares() {
  static const std::vector<Share> table = {
      {"share: a gemm", 40},
      {"share: a pipelined or selected loop that stores", 40},
      {"share: three or more shared tiles in one place", 20},
      {"share: a loop that fetches ahead", 10},
  };
  return table;
}

Occurrences shares_of(const Kernel& kernel, const Kernel* lowered) {
  Occurrences found;
  if (any(kernel, [](const Op& op) { return op.code == OpCode::Gemm; }))
    found.insert(all_shares()[0].name);
  if (any(kernel,
          [&](const Op& op) { return is_pipelined(op) && any_inside(kernel, op, is_store); }))
    found.insert(all_shares()[1].name);
  const auto fetches = [](const Op& op) {
    return op.code == OpCode::For && op.word("reason").starts_with("fetches ");
  };
  if (lowered && any(*lowered, fetches)) found.insert(all_shares()[3].name);
  if (lowered && most_aliases(*lowered) >= 3) found.insert(all_shares()[2].name);
  return found;
}

}  // namespace kiln::differential
