#include "ir/language.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ir/op.h"
#include "ir/text.h"

namespace kiln {
namespace {

constexpr std::string_view kIntroduction = R"(# The language of the IR

Generated from `ops.def` by `language.cpp`; a test compares the two, and `KILN_UPDATE=1` before that
test (`kiln_test_ir "[language]"`) rewrites this file. The rules that a kernel must keep are in the
head comment of `verify.cpp`; what every op does, bit by bit, is `interp*.cpp`.

## The text form

A `.tile` file holds one kernel. This one adds a bias to the rows of a matrix:

```
kernel @add_bias {
  %rows = dim {name = "rows"} : i32
  %x = tensor %rows {name = "x"} : tensor f16[?, 128]
  %bias = tensor {name = "bias"} : tensor f32[128]
  %y = tensor %rows {name = "y", role = output} : tensor f16[?, 128]
  %size = const {value = 32} : i32
  %round = const {value = 31} : i32
  %more = add %rows, %round : i32
  %blocks = floordiv %more, %size : i32
  launch %blocks do |%b: i32| {
    %zero = const {value = 0} : i32
    %first = mul %b, %size : i32
    %from = slice %x, %first, %zero : view global f16[32, 128]
    %tile = alloc : fragment f32[32, 128]
    copy %from, %tile  // rows beyond the end read as 0
    parallel {extents = [32, 128]} do |%i: i32, %j: i32| {
      %a = load %tile, %i, %j : f32
      %c = load %bias, %j : f32
      %sum = add %a, %c : f32
      store %sum, %tile, %i, %j
    }
    %to = slice %y, %first, %zero : view global f16[32, 128]
    copy %tile, %to  // rows beyond the end are not written
  }
}
```

    kernel    = "kernel" "@" (name | string) [kernel-attributes] body
    kernel-attributes = "{" kernel-attribute ("," kernel-attribute)* "}"
    kernel-attribute  = "fast_math" "=" bool | "target" "=" string
                      | "without" "=" string | "note" "=" string
    body      = "{" op* "}"
    op        = ["%" name "="] op-name [operand ("," operand)*] [attributes] [":" type] [location] region*
    operand   = "%" name | "_"
    attributes = "{" name "=" value ("," name "=" value)* "}"
    value     = integer | float | bool | string | word | "[" [integer ("," integer)*] "]"
    location  = "at" string ":" integer
    region    = "do" ["|" "%" name ":" type ("," "%" name ":" type)* "|"] body

- A name is a letter or `_`, then letters, digits, `_` and `.`. It is defined once, above its uses,
  and known until its region ends. `//` starts a comment. Ends of lines mean nothing else.
- An op that gives a result is written with a name and a type, any other without both.
- `_` stands for an optional operand that is left out; at the end such operands just end.
- An attribute with a default may be left out, and is not printed when it has that value.
- A float has a point or an exponent, or is `inf`, `-inf` or `nan`: `1.0`, `1e-06`. It prints as the
  shortest text that reads back as the same double. Where a float is due an integer will do. The
  value of a `const` must be exact in its type.
- Strings have the escapes `\"`, `\\`, `\n`, `\t` and `\x` with two hexadecimal digits.
- `at "file":line` is the place in the user's program that an op came from; printed on request.
- Regions nest at most 128 deep.

Printing names values after their op and number (`%load.3`) or the name of the tensor, dim or param;
reading and printing gives the same text. The canonical form (`canon.h`) orders pure ops and loads
by their uses; the hash of its text names a kernel in caches.

## Types

| text | what it is |
|---|---|
| `f32` | a scalar |
| `tensor f16[?, 128]` | global memory, bound at launch; `?` is an extent known only then |
| `shared f16[64, 64]` | a tile in memory shared by the block |
| `fragment f32[64]` | a tile in registers; of rank 0, `fragment f32[]`, a scalar variable |
| `view global f16[1, ?]` | a rectangular part of a tensor; `view shared …`, `view fragment …` of a tile |

Tensors, tiles and views are storage: ops read and write them in place.

)";

struct Group {
  OpCode first;
  const char* title;
  const char* text;
};
constexpr Group kGroups[] = {
    {OpCode::Dim, "The kernel's interface",
     "The top level of a kernel runs on the host at launch. Scalar ops may stand there too."},
    {OpCode::For, "Structure", "Ops with regions, inside a launch."},
    {OpCode::Alloc, "Storage", "Tiles, views, and moving elements."},
    {OpCode::Gemm, "Tile operations", "Operations on whole tiles."},
    {OpCode::Const, "Scalars",
     "Arithmetic is in the type of the operands, which agree; f16, bf16 and fp8 round after each "
     "op."},
};

std::string_view effect_name(Effect effect) {
  switch (effect) {
    case Effect::Read: return "read";
    case Effect::Write: return "written";
    case Effect::Update: return "updated";
    case Effect::None: break;
  }
  return "";
}

std::string type_name(const AttrInfo& attr) {
  switch (attr.type) {
    case AttrType::Bool: return "bool";
    case AttrType::Int: return "integer";
    case AttrType::Float: return "float";
    case AttrType::Number: return "number";
    case AttrType::Text: return "string";
    case AttrType::Ints: return "list of integers";
    case AttrType::Word: break;
  }
  return fmt::format("`{}`", fmt::join(attr.words, "` `"));
}

std::string default_text(const AttrValue& value) {
  if (auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (auto* integer = std::get_if<int64_t>(&value)) return fmt::format("{}", *integer);
  if (auto* real = std::get_if<double>(&value)) return float_text(*real);
  if (auto* list = std::get_if<std::vector<int64_t>>(&value))
    return fmt::format("[{}]", fmt::join(*list, ", "));
  const auto& text = std::get<std::string>(value);
  return text.empty() ? "\"\"" : text;
}

std::string dtypes() {
  std::string text = "| element type | bytes | |\n|---|---|---|\n";
  for (DType dtype : kAllDTypes) {
    const std::string_view note =
        dtype == F16    ? "IEEE half: 5 bits of exponent, 10 of mantissa"
        : dtype == BF16 ? "the upper half of an f32: 8 and 7"
        : dtype == E4M3
            ? "OCP 8-bit float without infinities, largest value 448; conversion saturates"
        : dtype == E5M2
            ? "OCP 8-bit float with infinities, largest value 57344; conversion saturates"
        : dtype == Bool        ? "0 or 1"
        : is_float(dtype)      ? "IEEE"
        : is_signed_int(dtype) ? "two's complement"
                               : "unsigned";
    text += fmt::format("| `{}` | {} | {} |\n", name(dtype), size_of(dtype), note);
  }
  return text + '\n';
}

constexpr std::string_view kEffects = R"(## How to read the ops

An operand that names storage is marked with what the op does to it: *read*, *written* (all of it,
without reading), *updated* (read and written). `name?` may be left out, `name…` is repeated zero or
more times. A *pure* op has no effect: passes remove, merge and move it. A *variable* is a thing of
its own: removed if unused, never merged. *top*: only at the top level; *inner*: only inside a
launch.

)";

std::string operand_text(const OperandInfo& operand) {
  std::string text = fmt::format("`{}{}`", operand.name,
                                 operand.optional   ? "?"
                                 : operand.repeated ? "…"
                                                    : "");
  if (operand.effect != Effect::None) text += fmt::format(" {}", effect_name(operand.effect));
  return text;
}

std::string traits_text(const OpInfo& op) {
  std::vector<std::string> traits;
  if (op.has_result) traits.push_back("one result");
  if (op.pure) traits.push_back("pure");
  if (op.variable) traits.push_back("variable");
  if (op.max_regions > 0)
    traits.push_back(op.min_regions == op.max_regions
                         ? fmt::format("{} region{}", op.max_regions, op.max_regions > 1 ? "s" : "")
                         : fmt::format("{} to {} regions", op.min_regions, op.max_regions));
  if (!op.inner) traits.push_back("top");
  if (!op.top) traits.push_back("inner");
  return fmt::format("{}", fmt::join(traits, ", "));
}

std::string op_text(const OpInfo& op) {
  std::vector<std::string> operands, attrs;
  for (const OperandInfo& operand : op.operands) operands.push_back(operand_text(operand));
  for (const AttrInfo& attr : op.attrs)
    attrs.push_back(fmt::format("`{}`: {}, {}", attr.name, type_name(attr),
                                attr.default_value
                                    ? fmt::format("default {}", default_text(*attr.default_value))
                                    : "required"));
  std::string text = fmt::format("### {}\n\n", op.name);
  if (!operands.empty()) text += fmt::format("- operands: {}\n", fmt::join(operands, ", "));
  if (!attrs.empty()) text += fmt::format("- attributes: {}\n", fmt::join(attrs, "; "));
  const std::string traits = traits_text(op);
  if (!traits.empty()) text += fmt::format("- {}\n", traits);
  return text + fmt::format("\n{}\n\n", op.doc);
}

// Scalar ops are many and alike: one row each.
std::string scalar_row(const OpInfo& op) {
  std::vector<std::string> operands, attrs;
  for (const OperandInfo& operand : op.operands) operands.push_back(operand.name);
  for (const AttrInfo& attr : op.attrs)
    attrs.push_back(attr.default_value
                        ? fmt::format("`{} = {}`", attr.name, default_text(*attr.default_value))
                        : fmt::format("`{}`: {}", attr.name, type_name(attr)));
  std::string doc(op.doc);
  for (size_t at = 0; (at = doc.find('|', at)) != doc.npos; at += 2) doc.insert(at, 1, '\\');
  return fmt::format("| `{}` | {} | {} | {} |\n", op.name, fmt::join(operands, ", "),
                     fmt::join(attrs, ", "), doc);
}

}  // namespace

std::string language_reference() {
  std::string text(kIntroduction);
  text += dtypes();
  text += kEffects;
  bool rows = false;
  for (const OpInfo& op : op_table()) {
    for (const Group& group : kGroups) {
      if (group.first != op.code) continue;
      rows = op.code == OpCode::Const;
      text += fmt::format("## {}\n\n{}\n\n", group.title, group.text);
      if (rows) text += "| op | operands | attributes | result |\n|---|---|---|---|\n";
    }
    text += rows ? scalar_row(op) : op_text(op);
  }
  return text;
}

}  // namespace kiln
