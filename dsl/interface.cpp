#include "dsl/interface.h"

#include <fmt/format.h>

#include "ir/error.h"

namespace kiln {
inline namespace dsl {
namespace {

Value declare(OpCode code, const std::string& name, DType dtype, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  std::string_view what = info(code).name;
  Builder& builder = tracer.top_level(loc, what);
  tracer.declare(name, what, loc);
  Attrs attrs;
  attrs.set("name", name);
  return builder.kernel().op(builder.emit(code, {}, std::move(attrs), Type::scalar(dtype))).result;
}

Tensor tensor(const char* role, const std::string& name, DType dtype,
              const std::vector<Arg>& extents, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  Builder& builder = tracer.top_level(loc, role);
  tracer.declare(name, role, loc);
  Shape shape;
  std::vector<Value> dynamic;
  for (const Arg& extent : extents) {
    Value value = extent.index(fmt::format("{}: extent {} of '{}'", role, shape.size(), name));
    auto known = constant_int(tracer.kernel(), value);
    if (known && *known < 0)
      throw UserError(loc,
                      fmt::format("{}: extent {} of '{}' is {}", role, shape.size(), name, *known),
                      "an extent is 0 or more, or a dim");
    shape.push_back(known.value_or(kDynamic));
    if (!known) dynamic.push_back(value);
  }
  Attrs attrs;
  attrs.set("name", name);
  attrs.set("role", std::string(role));
  builder.loc = loc;
  OpId op = builder.emit(OpCode::Tensor, std::move(dynamic), std::move(attrs),
                         Type::tensor(dtype, std::move(shape)));
  return Tensor(builder.kernel().op(op).result, loc);
}

}  // namespace

Dim::Dim(const std::string& name, Loc loc) : Expr(declare(OpCode::Dim, name, I32, loc), loc) {}

Expr param(const std::string& name, DType dtype, Loc loc) {
  return Expr(declare(OpCode::Param, name, dtype, loc), loc);
}

Tensor input(const std::string& name, DType dtype, const std::vector<Arg>& extents, Loc loc) {
  return tensor("input", name, dtype, extents, loc);
}
Tensor output(const std::string& name, DType dtype, const std::vector<Arg>& extents, Loc loc) {
  return tensor("output", name, dtype, extents, loc);
}
Tensor inout(const std::string& name, DType dtype, const std::vector<Arg>& extents, Loc loc) {
  return tensor("inout", name, dtype, extents, loc);
}
Tensor workspace(const std::string& name, DType dtype, const std::vector<Arg>& extents, Loc loc) {
  return tensor("workspace", name, dtype, extents, loc);
}

std::array<Expr, 3> launch(const std::vector<Arg>& extents, Loc loc) {
  return launch(extents, LaunchOptions{}, loc);
}

std::array<Expr, 3> launch(const std::vector<Arg>& extents, LaunchOptions options, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  if (tracer.inside_control())
    throw UserError(loc, "launch stands inside a loop or branch",
                    "end the loop first; launches follow one another");
  if (options.threads < 0 || options.threads > 1024 || options.threads % 32)
    throw UserError(loc, fmt::format("launch: threads is {}", options.threads),
                    "a multiple of 32 up to 1024, or 0 for as many as the compiler chooses");
  std::vector<Value> grid;
  for (const Arg& extent : extents) {
    grid.push_back(extent.index(fmt::format("launch: extent {}", grid.size())));
    auto known = constant_int(tracer.kernel(), grid.back());
    if (known && *known < 0)
      throw UserError(loc, fmt::format("launch: extent {} is {}", grid.size() - 1, *known),
                      "an extent is 0 or more: so many blocks");
  }
  std::vector<Value> blocks =
      tracer.open_launch(grid, options.rasterize, options.threads / 32, loc);
  while (blocks.size() < 3) blocks.push_back(tracer.scalars(loc).constant(I32, 0));
  return {Expr(blocks[0], loc), Expr(blocks[1], loc), Expr(blocks[2], loc)};
}

}  // namespace dsl
}  // namespace kiln
