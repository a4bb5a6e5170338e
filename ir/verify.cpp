// The law of the IR. The rule marked † holds for what a person wrote (IrStage::Traced) only.
//
// Form
//  - An op stands where the table allows it: `top` ops in the kernel's body, `inner` ops inside a
//    launch, so launches do not nest.
//  - Operands, attributes, regions and result are those of the table: number, kind, type, words.
//  - A value is used after its definition, in the region that defines it or in regions inside it.
//  - An op stands in one region, a region belongs to one op.
// Interface
//  - Names of dims, params and tensors are not empty, and unique. A dim is i32.
//  - A tensor has one i32 operand for each `?`; its other extents are 0 or more.
//  - A launch has 1 to 3 i32 extents and as many i32 arguments; `rasterize` is 0 to 2^31 - 1.
//  - A tensor of role `input` is not written, one of role `output` not read, nor through views.
// Structure
//  - for: i32 bounds, one i32 argument; `unroll` has constant bounds; a constant step is above 0.
//  - selected: at most one axis of the row is not 1; bool, i8 or i32; not a fragment; `count` goes
//    with i32 only; the body does not write the row. One i32 argument.
//  - if: a bool condition; no arguments.
//  - loop: no arguments; an exit_if directly in its region, where alone an exit_if (a bool
//  condition,
//    no arguments) stands.
//  - parallel: positive extents, an i32 argument an axis; holds scalar ops, loads, stores, atomics
//    and local tiles only.
//  - In a parallel, fragments follow the law in the table: own indices at most once each, 0 on an
//    axis of extent 1; stored to: the loop's extents, every index. Outside, only fragments of
//    rank 0 are loaded and stored. Never through views.
// Storage
//  - A tile is shared or a fragment, of positive static extents, at most 2^24 elements. Its offset,
//    if it has one, is 0 to 2^24. A local one has 1 to 4 axes and at most 64 elements, and only
//    loads and stores name it; one of the block's is not stored to in a parallel.
//  - reshape: of a tile of an alloc, shared, to one of as many bytes; neither bool.
//  - A slice has its base's space, dtype and rank, and extents above 0 or `?`; of a shared tile it
//    may lack axes in front, but not all. † It is not larger than a static extent, and from a
//    constant index it does not leave one.
//  - copy: static shapes that agree once extents of 1 are dropped; `pad` is exact in the source's
//    dtype; `group = next` is into shared memory. fill: static shape.
//  - load gives the base's dtype. Indices are i32, one an axis.
//  - gather, scatter: what is indexed is a tensor or in shared memory; rows are i32 on one axis, a
//    fragment of rank 1 or not a fragment; extents agree.
//  - device_assert: a bool condition. watch: static shape.
//  - atomic: on a tensor that is not an output, or a shared tile; i32, u32, i64, u64, f32 or f64,
//  the
//    last two not and, or, xor; value and result have the base's dtype.
//  - An op on whole tiles does not name storage that it writes in another operand.
//  - convert: fragments of one shape and dtype.
//  - A `layout` is the text of a layout (layout/text.h) over the tile's or the loop's extents: a
//    shared tile's by offset, one place an element; others by reg, 32 lanes and warps.
// Tile ops
//  - gemm: on-chip a, b of one dtype; c a fragment; matrices once extents of 1 in front are
//  dropped;
//    extents and dtypes fit. Any positive M, N, K.
//  - reduce: on-chip; dim within the rank; the destination has the axis removed or of extent 1; one
//    dtype, or any two floats; max, min, sum, absmax of numbers, and, or, xor of integers and bool.
//  - arg_reduce: as reduce, of numbers; the destination is i32. cumsum: numbers; shapes agree, and
//    dtypes as of reduce. sort: keys are numbers, with `sorted` of their dtype; values of any
//    dtype, with `order` of theirs, else of i32; the shapes agree but for a shorter axis of the
//    results.
//  - softmax ops: fragments of f32, p a tile of any float; shapes agree; scale is f32, and finite
//    and above 0 if it is constant.
//    l of softmax_step may have an axis of parts; `exact` is bool.
// The late IR
//  - roles: the last op of a launch's region; an entry of names (different words), warps (1, or a
//    multiple of 4 up to 32) and registers (a multiple of 8, 24 to 256) a region. The launch's
//    warps, if given, are those of the roles in whole warpgroups, at most 32. The roles' registers
//    are not more than a launch of so many threads gets: min(256, 65536 / threads) in steps of 8,
//    each.
//  - A role names no tile from outside. Of 1 warp, it has no fragment but scalar variables, and
//    only asynchronous copies and stores move tiles. Layouts have the role's warps.
//  - channel: with roles directly in the launch's region, and one role pushes, another pops;
//    without roles in any region, of tiles alone, and the block does both. 1 to 4096 slots, a
//    message of name:bool and name:i32; offset a multiple of 1024, control of 16. Rings, control,
//    and tiles of different roles, where they have places, lie apart and in the launch's memory.
//  - A push ends in the region where it began, before another of the channel begins, and before the
//    region or the loop around it is left. push_end has all fields of the message or none.
//  - Slots: of pop or held for message and release, of push_begin for push_end and copy_async; not
//    used in the region after push_end or release. `pending` of pop: 0 or more, 0 in a role.
//  - copy_async, store_async: as copy, of one dtype, from global to a slot, from shared to global.
//    `split = warps`: the rows are a multiple of the agent's warps.
//  - gemm_async: as gemm, b shared. Awaited once, or by the await of one begun later, in its region
//    and before a loop in it begins or is left. Until then c is named by gemm_async only, as c; a
//    and b are not written, nor a slot of them released.
//  - In a role of several warps, a shared tile with a layout that threads wrote is read after a
//    barrier only, but by store_async.
//  - next_tile: i32; the counter is a tensor i32[1].
// Scalars
//  - Operands agree in dtype, and the result has it, but for compare (bool), select and cast.
//  - A const is exactly representable in its type.
//  - div: floats. floordiv, floormod, shl, shr: integers. and, or, xor, not: integers and bool.
//    fma: f32, f64. exp … ceil: f16, bf16, f32, f64. add, sub, mul, min, max, neg, abs: numbers.
#include "ir/verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ir/error.h"
#include "ir/layout/text.h"
#include "ir/layout/tile_layout.h"
#include "ir/verify_impl.h"
#include "ir/walk.h"

namespace kiln {

void Law::fail(const Op& op, const std::string& message, const std::string& hint) const {
  throw UserError(op.loc, fmt::format("{}: {}", info(op.code).name, message), hint);
}

std::string operand_name(const Op& op, size_t operand) {
  const OpInfo& row = info(op.code);
  const OperandInfo& described = row.operand(operand);
  if (!described.repeated) return fmt::format("'{}'", described.name);
  return fmt::format("'{}' {}", described.name, operand - (row.operands.size() - 1));
}

std::string brief(const Type& type) {
  if (type.shape.empty()) return std::string(name(type.dtype));
  std::vector<std::string> extents;
  for (int64_t extent : type.shape)
    extents.push_back(extent == kDynamic ? "?" : std::to_string(extent));
  return fmt::format("{} {}", fmt::join(extents, "x"), name(type.dtype));
}

void Law::require_i32(const Op& op, size_t operand) const {
  const Type& got = type(op.operands[operand]);
  if (got != Type::scalar(I32))
    fail(op, fmt::format("{}: expected i32, got {}", operand_name(op, operand), str(got)),
         got.is_scalar() ? "cast it to i32" : "");
}

void Law::require_index(const Op& op, size_t first, const Type& base) const {
  size_t given = op.operands.size() - first;
  if (given != base.shape.size())
    fail(op, fmt::format("indices of {}: expected {}, got {}", str(base), base.shape.size(), given),
         "one index an axis");
  for (size_t i = first; i < op.operands.size(); ++i) require_i32(op, i);
}

void Law::require_layout(const Op& op, const Shape& shape, Space space) const {
  const std::string& text = op.word("layout");
  if (text.empty()) return;
  std::optional<Layout> layout;
  try {
    layout = parse_layout(text);
  } catch (const UserError& error) {
    fail(op, fmt::format("layout: {}", error.message()), error.hint());
  }
  if (const std::string misfit = layout_misfit(*layout, shape, space); !misfit.empty())
    fail(op, "layout: " + misfit, "ir/layout/text.h says how a layout is written");
}

namespace {

// How the op is written: "for begin end step {kind, stages}".
std::string usage(const OpInfo& row) {
  std::string text(row.name);
  for (const OperandInfo& operand : row.operands)
    text += " " + operand.name + (operand.repeated ? "*" : operand.optional ? "?" : "");
  std::vector<std::string_view> names;
  for (const AttrInfo& attr : row.attrs) names.push_back(attr.name);
  return names.empty() ? text : fmt::format("{} {{{}}}", text, fmt::join(names, ", "));
}

// Walks all regions, keeping the set of visible values.
class Verifier {
 public:
  Verifier(const Kernel& kernel, IrStage stage)
      : law_{kernel, stage}, kernel_(kernel), visible_(kernel.value_count(), false) {}

  void run() {
    check_names();
    check_region(kernel_.body, true);
  }

  void run_op(OpId id, OpId parallel) {
    visible_.assign(kernel_.value_count(), true);
    if (parallel) law_.parallel = &kernel_.op(parallel);
    check_alone(id, !info(kernel_.op(id).code).inner);
  }

 private:
  void check_names() const;
  void check_region(RegionId region, bool top);
  void check_op(OpId id, bool top);
  void check_alone(OpId id, bool top) const;
  void check_place(const Op& op, bool top) const;
  void check_operands(const Op& op) const;
  void check_attrs(const Op& op) const;
  void check_result(OpId id) const;
  void check_roles(const Op& op) const;
  void check_aliases(const Op& op) const;
  void check_rules(const Op& op) const;

  Law law_;
  const Kernel& kernel_;
  std::vector<bool> visible_;
  std::vector<bool> seen_regions_;
};

void Verifier::check_names() const {
  std::vector<std::string> names;
  for (OpId id : kernel_.region(kernel_.body).ops) {
    const Op& op = kernel_.op(id);
    if (op.code != OpCode::Dim && op.code != OpCode::Param && op.code != OpCode::Tensor) continue;
    const AttrValue* value = op.attrs.find("name");
    const std::string* name = value ? std::get_if<std::string>(value) : nullptr;
    if (!name) continue;  // check_attrs says what is wrong
    if (name->empty()) law_.fail(op, "the name is empty", "a name to bind it by");
    if (std::find(names.begin(), names.end(), *name) != names.end())
      law_.fail(op, fmt::format("the name '{}' is taken", *name),
                "dims, params and tensors of a kernel need different names");
    names.push_back(*name);
  }
}

void Verifier::check_region(RegionId region, bool top) {
  if (seen_regions_.size() <= region.id) seen_regions_.resize(region.id + 1);
  if (seen_regions_[region.id]) throw InternalError("a region belongs to two ops");
  seen_regions_[region.id] = true;
  for (Value arg : kernel_.region(region).args) visible_[arg.id] = true;
  for (OpId id : kernel_.region(region).ops) {
    check_op(id, top);
    if (Value result = kernel_.op(id).result) visible_[result.id] = true;
  }
  for (OpId id : kernel_.region(region).ops)
    if (Value result = kernel_.op(id).result) visible_[result.id] = false;
  for (Value arg : kernel_.region(region).args) visible_[arg.id] = false;
}

void Verifier::check_op(OpId id, bool top) {
  check_alone(id, top);
  const Op& op = kernel_.op(id);
  const Op* outer = law_.parallel;
  if (op.code == OpCode::Parallel) law_.parallel = &op;
  for (RegionId region : op.regions) check_region(region, false);
  law_.parallel = outer;
  if (op.code != OpCode::Launch) return;
  check_agents(law_, op);
  check_order(law_, op);
}

void Verifier::check_alone(OpId id, bool top) const {
  const Op& op = kernel_.op(id);
  check_place(op, top);
  check_operands(op);
  check_attrs(op);
  check_result(id);
  const OpInfo& row = info(op.code);
  int regions = static_cast<int>(op.regions.size());
  if (regions < row.min_regions || regions > row.max_regions)
    law_.fail(op,
              fmt::format("regions: expected {}, got {}",
                          row.min_regions == row.max_regions
                              ? std::to_string(row.min_regions)
                              : fmt::format("{} to {}", row.min_regions, row.max_regions),
                          regions),
              usage(row));
  check_roles(op);
  check_aliases(op);
  check_rules(op);
}

void Verifier::check_place(const Op& op, bool top) const {
  const OpInfo& row = info(op.code);
  if (top && !row.top) law_.fail(op, "stands outside a launch", "move it into the launch");
  if (!top && !row.inner)
    law_.fail(op, "stands inside a launch; expected the top level of the kernel",
              op.code == OpCode::Launch ? "launches of a kernel follow each other" : "");
  if (law_.parallel) check_in_parallel(law_, op);
}

// What kind of value an operand is. Storage is named by operands with an effect, and by the base of
// a slice or reshape; channels and tokens by operands of those names.
struct Expected {
  const char* words;
  bool (*holds)(const Type&);
};
Expected expected_operand(const Op& op, size_t index) {
  const OperandInfo& described = info(op.code).operand(index);
  if (described.name == "channel")
    return {"a channel", [](const Type& type) { return type.kind == Kind::Channel; }};
  if (described.name == "token")
    return {"a token", [](const Type& type) { return type.kind == Kind::Token; }};
  const bool part =
      op.code == OpCode::Slice || op.code == OpCode::Reshape || op.code == OpCode::Every;
  if (described.effect != Effect::None || (part && index == 0))
    return {"a tensor, tile or view", [](const Type& type) { return type.is_storage(); }};
  return {"a scalar", [](const Type& type) { return type.is_scalar(); }};
}

void Verifier::check_operands(const Op& op) const {
  const OpInfo& row = info(op.code);
  const size_t given = op.operands.size();
  size_t fewest = row.operands.size();  // a required operand may follow an optional one
  while (fewest > 0 && (row.operands[fewest - 1].optional || row.operands[fewest - 1].repeated))
    --fewest;
  if (given < fewest || given > static_cast<size_t>(row.max_operands()))
    law_.fail(op,
              fmt::format("expected {}{} operands, got {}",
                          fewest == row.operands.size() ? "" : "at least ", fewest, given),
              usage(row));
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const OperandInfo& described = row.operand(i);
    Value value = op.operands[i];
    if (!value) {
      if (!described.optional) law_.fail(op, operand_name(op, i) + " is missing", usage(row));
      continue;
    }
    if (value.id >= visible_.size() || !visible_[value.id])
      law_.fail(op, operand_name(op, i) + " is used where it is not defined",
                "a value lives from its definition to the end of the region around it");
    const Type& type = kernel_.type(value);
    const Expected expected = expected_operand(op, i);
    if (!expected.holds(type))
      law_.fail(
          op,
          fmt::format("{}: expected {}, got {}", operand_name(op, i), expected.words, str(type)),
          expected.holds(Type::scalar(I32)) && type.is_storage() ? "load an element of it" : "");
    if (type.space == Space::Local && op.code != OpCode::Load && op.code != OpCode::Store)
      law_.fail(op,
                fmt::format("{}: expected a tensor or tile, got the array {}", operand_name(op, i),
                            str(type)),
                "load and store its elements one by one, or use a shared tile");
  }
}

bool fits(AttrType type, const AttrValue& value) {
  switch (type) {
    case AttrType::Bool: return std::holds_alternative<bool>(value);
    case AttrType::Int: return std::holds_alternative<int64_t>(value);
    case AttrType::Float: return std::holds_alternative<double>(value);
    case AttrType::Number:
      return std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value);
    case AttrType::Word:
    case AttrType::Text: return std::holds_alternative<std::string>(value);
    case AttrType::Ints: return std::holds_alternative<std::vector<int64_t>>(value);
  }
  return false;
}

void Verifier::check_attrs(const Op& op) const {
  const OpInfo& row = info(op.code);
  for (const auto& [key, value] : op.attrs.entries()) {
    const AttrInfo* attr = row.attr(key);
    if (!attr) law_.fail(op, fmt::format("has no attribute '{}'", key), usage(row));
    if (!fits(attr->type, value))
      law_.fail(op, fmt::format("attribute '{}' has a value of the wrong type", key),
                "ir/LANGUAGE.md has the types");
    const auto* word = std::get_if<std::string>(&value);
    if (attr->type == AttrType::Word &&
        std::find(attr->words.begin(), attr->words.end(), *word) == attr->words.end())
      law_.fail(op,
                fmt::format("attribute '{}': expected one of {}, got '{}'", key,
                            fmt::join(attr->words, ", "), *word),
                "one of these words");
  }
  for (const AttrInfo& attr : row.attrs)
    if (!attr.default_value && !op.attrs.find(attr.name))
      law_.fail(op, fmt::format("attribute '{}' is missing", attr.name), usage(row));
}

Kind kind_of_result(OpCode code) {
  switch (code) {
    case OpCode::Tensor: return Kind::Tensor;
    case OpCode::Alloc:
    case OpCode::Reshape:
    case OpCode::PushBegin:
    case OpCode::Pop:
    case OpCode::Held: return Kind::Tile;
    case OpCode::Every:
    case OpCode::Slice: return Kind::View;
    case OpCode::Channel: return Kind::Channel;
    case OpCode::GemmAsync: return Kind::Token;
    default: return Kind::Scalar;
  }
}

void Verifier::check_result(OpId id) const {
  const Op& op = kernel_.op(id);
  if (info(op.code).has_result != static_cast<bool>(op.result))
    law_.fail(op, op.result ? "expected no result, got one" : "expected a result, got none",
              op.result ? usage(info(op.code)) : "%name = " + usage(info(op.code)));
  if (op.result && kernel_.def(op.result) != id)
    throw InternalError(op.loc, "a result belongs to two ops");
  if (!op.result) return;
  const Kind expected = kind_of_result(op.code);
  const Type& type = kernel_.type(op.result);
  static constexpr const char* kNames[] = {"a scalar", "a tensor",  "a tile",
                                           "a view",   "a channel", "a token"};
  if (type.kind != expected)
    law_.fail(op,
              fmt::format("the result: expected {}, got {}", kNames[static_cast<size_t>(expected)],
                          str(type)),
              "the type after the colon");
}

// Inputs are not written, outputs not read.
void Verifier::check_roles(const Op& op) const {
  const OpInfo& row = info(op.code);
  for (size_t i = 0; i < op.operands.size(); ++i) {
    Effect effect = row.operand(i).effect;
    if (!op.operands[i] || effect == Effect::None) continue;
    const Op* tensor = kernel_.def_as(base_of(kernel_, op.operands[i]), OpCode::Tensor);
    if (!tensor) continue;
    const std::string& role = tensor->word("role");
    if (effect != Effect::Read && role == "input")
      law_.fail(op, fmt::format("writes '{}', which is an input", tensor->word("name")),
                "declare it output, inout or workspace");
    if (effect == Effect::Read && role == "output")
      law_.fail(op, fmt::format("reads '{}', which is an output", tensor->word("name")),
                "declare it inout or workspace");
  }
}

void Verifier::check_aliases(const Op& op) const {
  std::vector<Access> found = accesses(kernel_, op);
  for (size_t i = 0; i < found.size(); ++i)
    for (size_t j = 0; j < found.size(); ++j)
      if (i != j && found[i].base == found[j].base && found[i].effect != Effect::Read)
        law_.fail(op,
                  fmt::format("writes {} and also uses it as another operand",
                              str(kernel_.type(found[i].base))),
                  "go through another tile");
}

void Verifier::check_rules(const Op& op) const {
  switch (op.code) {
    case OpCode::Dim:
    case OpCode::Param:
    case OpCode::Tensor:
    case OpCode::Launch: return check_interface(law_, op);
    case OpCode::For:
    case OpCode::Selected:
    case OpCode::If:
    case OpCode::Loop:
    case OpCode::ExitIf:
    case OpCode::Parallel: return check_structure(law_, op);
    case OpCode::Alloc:
    case OpCode::Reshape:
    case OpCode::Slice:
    case OpCode::Every:
    case OpCode::Copy:
    case OpCode::Convert:
    case OpCode::Barrier:
    case OpCode::WaitCopies:
    case OpCode::CommitCopies:
    case OpCode::Fill:
    case OpCode::Load:
    case OpCode::Store:
    case OpCode::Atomic:
    case OpCode::Gather:
    case OpCode::Scatter:
    case OpCode::Watch: return check_storage(law_, op);
    case OpCode::DeviceAssert: return check_structure(law_, op);
    case OpCode::Gemm:
    case OpCode::Reduce: return check_tile_op(law_, op);
    case OpCode::ArgReduce:
    case OpCode::Cumsum:
    case OpCode::Sort: return check_row_op(law_, op);
    case OpCode::SoftmaxStep:
    case OpCode::ScaleRows:
    case OpCode::SoftmaxFinish: return check_softmax(law_, op);
    case OpCode::Roles:
    case OpCode::Channel:
    case OpCode::PushBegin:
    case OpCode::PushEnd:
    case OpCode::Pop:
    case OpCode::Held:
    case OpCode::Message:
    case OpCode::Release:
    case OpCode::CopyAsync:
    case OpCode::StoreAsync:
    case OpCode::AwaitStores:
    case OpCode::GemmAsync:
    case OpCode::Await:
    case OpCode::NextTile: return check_late(law_, op);
    default: return check_scalar(law_, op);
  }
}

}  // namespace

void verify(const Kernel& kernel, IrStage stage) {
  Verifier(kernel, stage).run();
}

void verify_op(const Kernel& kernel, OpId op, OpId parallel) {
  Verifier(kernel, IrStage::Traced).run_op(op, parallel);
}

}  // namespace kiln
