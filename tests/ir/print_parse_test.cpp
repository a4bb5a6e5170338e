#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "ir/builder.h"
#include "ir/error.h"
#include "ir/parse.h"
#include "ir/print.h"

using namespace kiln;

namespace {

constexpr const char* kSoftmax = R"(kernel @row_softmax {fast_math = true} {
  %rows = dim {name = "rows"} : i32
  %scale = param {name = "scale"} : f32
  %x = tensor %rows {name = "x"} : tensor f32[?, 1024]
  %y = tensor %rows {name = "y", role = output} : tensor f32[?, 1024]
  %const.0 = const {value = 16} : i32
  %floordiv.0 = floordiv %rows, %const.0 : i32
  launch %floordiv.0 do |%bx: i32| {
    %alloc.0 = alloc : shared f32[16, 1024]
    %alloc.1 = alloc : fragment f32[16]
    %const.1 = const {value = 0} : i32
    %slice.0 = slice %x, %bx, %const.1 : view global f32[16, 1024]
    copy %slice.0, %alloc.0 {pad = -inf}
    reduce %alloc.0, %alloc.1 {kind = max, dim = 1}
    parallel {extents = [16, 1024]} do |%i: i32, %j: i32| {
      %load.0 = load %alloc.0, %i, %j : f32
      %exp.0 = exp %load.0 {fast = true} : f32
      store %exp.0, %alloc.0, %i, %j
    }
    %compare.0 = compare %bx, %const.1 {kind = lt} : bool
    if %compare.0 do {
      softmax_finish %alloc.0, %alloc.1, %alloc.1, _, %scale
    } do {
      for %const.1, %const.0, %const.1 {kind = pipelined, stages = 2} do |%k: i32| {
      }
    }
  }
}
)";

// One op in a kernel, with values to use as operands.
std::string with_op(const std::string& op) {
  return "kernel @k {\n  %n = dim {name = \"n\"} : i32\n" + op + "\n}\n";
}

void stays_the_same(const std::string& text) {
  const Kernel kernel = parse(text);
  CHECK(print(kernel) == text);
}

// `text` is refused at `line` with a message that contains `message` and a caret under the first
// occurrence, in that line, of `under`.
void refused(const std::string& text, int line, const std::string& message,
             const std::string& under, const std::string& hint = "") {
  INFO(text);
  try {
    parse(text, "test.tile");
  } catch (const UserError& error) {
    INFO(error.what());
    CHECK(std::string(error.loc().file) == "test.tile");
    CHECK(error.loc().line == line);
    CHECK(error.message().find(message) == 0);
    CHECK(error.hint().find(hint) != std::string::npos);
    const std::string& full = error.message();
    const size_t caret_line = full.rfind('\n'), source_line = full.rfind('\n', caret_line - 1);
    const std::string source = full.substr(source_line + 1, caret_line - source_line - 1);
    const std::string caret = full.substr(caret_line + 1);
    CHECK(caret.find_first_not_of(' ') == caret.size() - 1);
    CHECK(caret.back() == '^');
    CHECK(source.substr(caret.size() - 1).find(under) == 0);
    return;
  }
  FAIL("accepted");
}

void refused_op(const std::string& op, const std::string& message, const std::string& under,
                const std::string& hint = "") {
  refused(with_op(op), 3, message, under, hint);
}

}  // namespace

TEST_CASE("print gives back the text that was parsed") {
  stays_the_same(kSoftmax);
  stays_the_same("kernel @empty {\n}\n");
  stays_the_same("kernel @\"a \\\"b\\\\c\\n\\x01\" {\n}\n");
}

TEST_CASE("parse understands what was written") {
  const Kernel kernel = parse(kSoftmax, "softmax.tile");
  CHECK(kernel.name == "row_softmax");
  CHECK(kernel.fast_math);
  const std::vector<OpId>& top = kernel.region(kernel.body).ops;
  REQUIRE(top.size() == 7);
  const Op& tensor = kernel.op(top[2]);
  CHECK(tensor.code == OpCode::Tensor);
  CHECK(tensor.operands == std::vector{kernel.op(top[0]).result});
  CHECK(kernel.type(tensor.result) == Type::tensor(F32, {kDynamic, 1024}));
  CHECK(tensor.word("role") == "input");
  CHECK(tensor.loc.line == 4);
  CHECK(std::string(tensor.loc.file) == "softmax.tile");
  CHECK(constant_int(kernel, kernel.op(top[4]).result) == 16);

  const Region& launch = kernel.region(kernel.op(top[6]).regions.at(0));
  REQUIRE(launch.args.size() == 1);
  CHECK(kernel.type(launch.args[0]) == Type::scalar(I32));
  const Op& copy = kernel.op(launch.ops[4]);
  CHECK(copy.real("pad") == -std::numeric_limits<double>::infinity());
  const Op& parallel = kernel.op(launch.ops[6]);
  CHECK(parallel.ints("extents") == std::vector<int64_t>{16, 1024});
  const Op& branch = kernel.op(launch.ops[8]);
  REQUIRE(branch.regions.size() == 2);
  const Op& finish = kernel.op(kernel.region(branch.regions[0]).ops[0]);
  REQUIRE(finish.operands.size() == 5);
  CHECK_FALSE(finish.operands[3]);
}

TEST_CASE("free text is read: comments, spacing, names, defaults") {
  const Kernel kernel = parse(R"(// a kernel
    kernel @k{%n=dim{name="n"}:i32// no blanks
    %_a.b.c = add %n,
        %n : i32
    %t = tensor {role = input, name = "a%"} : tensor i8[]
    launch%n do|%x:i32|{}launch %n do |%x: i32| { %v = slice %t : view global i8[] } })");
  CHECK(print(kernel) == R"(kernel @k {
  %n = dim {name = "n"} : i32
  %add.0 = add %n, %n : i32
  %a_ = tensor {name = "a%"} : tensor i8[]
  launch %n do |%bx: i32| {
  }
  launch %n do |%bx.1: i32| {
    %slice.0 = slice %a_ : view global i8[]
  }
}
)");
}

TEST_CASE("names are unique and follow the names of the interface") {
  Kernel kernel("k");
  Builder b(kernel);
  auto dim = [&](const std::string& name) {
    Attrs attrs;
    attrs.set("name", name);
    return b.emit(OpCode::Dim, {}, attrs, Type::scalar(I32));
  };
  for (const char* name : {"n", "n", "1 x", "", "add.0", "é"}) dim(name);
  const Value n = kernel.op(dim("n.1")).result;
  b.binary(OpCode::Add, n, n);
  const std::string text = print(kernel);
  for (const char* name : {"%n = ", "%n.1 = ", "%_1_x = ", "%dim.0 = ", "%add.0 = ", "%__ = ",
                           "%n.1.1 = ", "%add.1 = add %n.1.1, %n.1.1"})
    CHECK(text.find(name) != std::string::npos);
  stays_the_same(text);
}

TEST_CASE("numbers keep every bit") {
  struct Case {
    DType dtype;
    double value;
    const char* text;
  };
  const Case cases[] = {
      {F64, 0.1, "0.1"},
      {F64, 1, "1.0"},
      {F64, -0.0, "-0.0"},
      {F64, 1e300, "1e+300"},
      {F64, 5e-324, "5e-324"},
      {F64, 123456789012345680, "1.2345678901234568e+17"},
      {F64, 1.0 / 3, "0.3333333333333333"},
      {F32, 0.1f, "0.10000000149011612"},
      {F32, std::numeric_limits<double>::infinity(), "inf"},
      {F16, -std::numeric_limits<double>::infinity(), "-inf"},
      {BF16, std::numeric_limits<double>::quiet_NaN(), "nan"},
      {E4M3, 448, "448.0"},
  };
  for (const Case& c : cases) {
    Kernel kernel("k");
    Builder(kernel).constant(c.dtype, c.value);
    const std::string text = print(kernel);
    CHECK(text == std::string("kernel @k {\n  %const.0 = const {value = ") + c.text +
                      "} : " + std::string(name(c.dtype)) + "\n}\n");
    const Kernel back = parse(text);
    const double value = constant_of(back, back.op(back.region(back.body).ops[0]).result)->f;
    CHECK((std::isnan(c.value) ? std::isnan(value) : value == c.value));
    CHECK(std::signbit(value) == (std::signbit(c.value) && !std::isnan(c.value)));
    CHECK(print(back) == text);
  }
  struct IntCase {
    DType dtype;
    int64_t value;
    const char* text;
  };
  const IntCase ints[] = {{U64, -1, "18446744073709551615"},
                          {I64, std::numeric_limits<int64_t>::min(), "-9223372036854775808"},
                          {I8, -128, "-128"},
                          {U8, 255, "255"},
                          {Bool, 1, "true"}};
  for (const IntCase& c : ints) {
    Kernel kernel("k");
    Builder(kernel).constant(c.dtype, c.value);
    const std::string text = print(kernel);
    CHECK(text.find(std::string("{value = ") + c.text + "}") != std::string::npos);
    const Kernel back = parse(text);
    CHECK(constant_of(back, back.op(back.region(back.body).ops[0]).result)->i == c.value);
    CHECK(print(back) == text);
  }
}

TEST_CASE("integer and word literals become what the const's type says") {
  const Kernel kernel = parse(
      "kernel @k { %a = const {value = 3} : f32 %b = const {value = 1} : bool\n"
      "%c = const {value = false} : bool %d = const {value = inf} : e5m2 }");
  CHECK(print(kernel) ==
        "kernel @k {\n  %const.0 = const {value = 3.0} : f32\n"
        "  %const.1 = const {value = true} : bool\n  %const.2 = const {value = false} : bool\n"
        "  %const.3 = const {value = inf} : e5m2\n}\n");
}

TEST_CASE("locations are printed on request and read back") {
  Kernel kernel("k");
  Builder b(kernel);
  b.loc = {"dir/a \"b\".cpp", 12};
  b.constant(I32, 1);
  b.loc = {};
  b.constant(I32, 2);
  Attrs extents;
  extents.set("extents", std::vector<int64_t>{4});
  b.loc = {"c.cpp", 7};
  b.add_region(b.emit(OpCode::Parallel, {}, extents));
  const std::string text = print(kernel, {.locations = true});
  CHECK(text == R"(kernel @k {
  %const.0 = const {value = 1} : i32 at "dir/a \"b\".cpp":12
  %const.1 = const {value = 2} : i32
  parallel {extents = [4]} at "c.cpp":7 do {
  }
}
)");
  const Kernel back = parse(text, "t.tile");
  const std::vector<OpId>& ops = back.region(back.body).ops;
  CHECK(str(back.op(ops[0]).loc) == "dir/a \"b\".cpp:12");
  CHECK(str(back.op(ops[1]).loc) == "t.tile:3");
  CHECK(str(back.op(ops[2]).loc) == "c.cpp:7");
}

TEST_CASE("print_op is one line with the names of the whole text") {
  const Kernel kernel = parse(kSoftmax);
  const OpId launch = kernel.region(kernel.body).ops.back();
  CHECK(print_op(kernel, launch) == "launch %floordiv.0");
  const OpId copy = kernel.region(kernel.op(launch).regions[0]).ops[4];
  CHECK(print_op(kernel, copy) == "copy %slice.0, %alloc.0 {pad = -inf}");
}

TEST_CASE("print shows broken kernels instead of failing") {
  Kernel kernel("k");
  Attrs odd;
  odd.set("value", std::string("x"));
  odd.set("unknown", true);
  const Value stray = kernel.new_value(Type::scalar(F32));
  Builder b(kernel);
  b.emit(OpCode::Const, {stray, stray}, odd);
  CHECK(print(kernel) ==
        "kernel @k {\n  const %undefined.0, %undefined.0 {value = \"x\", unknown = true}\n}\n");
  const OpId loose = kernel.new_op(OpCode::Neg, {}, {stray});
  kernel.set_result(loose, Type::scalar(F32));
  CHECK(print_op(kernel, loose) == "%neg.0 = neg %undefined.0 : f32");
}

TEST_CASE("malformed text is refused at its place: structure") {
  refused("", 1, "expected 'kernel @name { ... }', got the end of the text", "");
  refused("kernel k {}", 1, "expected '@' before the kernel's name, got 'k'", "k {}");
  refused("kernel @k", 1, "expected '{' before the ops, got the end of the text", "");
  refused("kernel @k {\n", 2, "expected '}' for the '{' of line 1", "");
  refused("kernel @k {}\n}", 2, "expected nothing after the kernel, got '}'", "}");
  refused("kernel @k {fast = true} {}", 1, "a kernel has no attribute 'fast'", "fast");
  refused("kernel @k {fast_math = 1} {}", 1, "expected true or false for 'fast_math'", "1}");
  refused_op("  launch %n", "launch needs 1 region", "launch");
  refused_op("  launch %n do {} do {}", "launch has at most 1 region", "do {}");
  refused_op("  copy %n, %n do {}", "copy has no region", "do {}");
  refused_op("  launch %n do |%i| {}", "expected ':' and a type after the argument", "|");
  refused_op("  launch %n do |i: i32| {}", "expected an argument, as in |%i: i32|", "i:");
  refused_op("  launch %n do |%i: i32 {}", "expected '|' after the arguments", "{}");
}

TEST_CASE("malformed text is refused at its place: ops and operands") {
  refused_op("  %a = ad %n, %n : i32", "unknown op 'ad'", "ad", "'add'");
  refused_op("  %a = frobnicate %n : i32", "unknown op 'frobnicate'", "frobnicate");
  refused_op("  %a = add %n : i32", "add takes 2 operands, got 1", "add", "'b' is missing");
  refused_op("  %a = add %n, %n, %n : i32", "add takes at most 2 operands", "%n");
  refused_op("  %a = neg : i32", "neg takes 1 operand, got 0", "neg");
  refused_op("  %a = load : i32", "load takes at least 1 operand, got 0", "load");
  refused_op("  softmax_finish %n, %n, %n, %n", "softmax_finish takes 5 operands, got 4",
             "softmax_finish", "'scale' is missing");
  refused_op("  %a = add _, %n : i32", "operand 'a' of add may not be left out", "_");
  refused_op("  %a = add %n %n : i32", "add takes 2 operands, got 1", "add");
  refused_op("  %a = add %n, : i32", "expected operand 'b' of add, got ':'", ":");
  refused_op("  %a = add %n, %n", "expected ':' and the type of add, got the end of the line", "");
  refused_op("  add %n, %n : i32", "add has a result: expected '%name = add'", "add");
  refused_op("  %a = copy %n, %n", "copy has no result to name", "%a");
  refused_op("  copy %n, %n : i32", "copy has no result, so no type", ":");
  refused_op("  %a = %n", "expected an op, got '%n'", "%n");
  refused_op("  %a add %n, %n : i32", "expected '=' after the name of a result, got 'add'", "add");
  refused_op("  %a = neg %m : i32", "'%m' is not defined above this line", "%m");
  refused_op("  %a = neg %a : i32", "'%a' is not defined above this line", "%a : i32");
  refused(with_op("  %count = neg %n : i32\n  %b = neg %cout : i32"), 4,
          "'%cout' is not defined above this line", "%cout", "'%count'");
  refused_op("  %n = neg %n : i32", "'%n' is already defined, in line 2", "%n");
  refused(with_op("  launch %n do |%i: i32| {\n  }\n  %a = neg %i : i32"), 5,
          "'%i' is defined in a region that has ended (line 3)", "%i");
  refused(with_op("  launch %n do |%i: i32| {\n    %i = neg %n : i32\n  }"), 4,
          "'%i' is already defined, in line 3", "%i");
}

TEST_CASE("malformed text is refused at its place: attributes") {
  refused_op("  copy %n, %n {pads = 1.0}", "copy has no attribute 'pads'", "pads", "'pad'");
  refused_op("  copy %n, %n {pad = true}", "expected a number for 'pad', got 'true'", "true");
  refused_op("  copy %n, %n {pad = 1.0, pad = 2.0}", "attribute 'pad' is given twice", "pad = 2");
  refused_op("  copy %n, %n {pad 1.0}", "expected '=' after the attribute's name", "1.0");
  refused_op("  copy %n, %n {}", "expected an attribute, as in {name = value}, got '}'", "}");
  refused_op("  %a = dim : i32", "dim needs the attribute 'name'", "dim");
  refused_op("  %a = dim {name = n} : i32", "expected a string for 'name', got 'n'", "n}");
  refused_op("  reduce %n, %n {kind = maxi, dim = 0}", "expected one of max, min, sum", "maxi",
             "'max'");
  refused_op("  reduce %n, %n {kind = max, dim = 0.5}", "expected an integer for 'dim'", "0.5");
  refused_op("  reduce %n, %n {kind = max, dim = 9223372036854775808}",
             "9223372036854775808 is out of the range of 64 bits", "9223");
  refused_op("  reduce %n, %n {kind = max, dim = 0, clear = 1}",
             "expected true or false for 'clear'", "1}");
  refused_op("  parallel {extents = 4} do {}", "expected a list of integers for 'extents'", "4}");
  refused_op("  parallel {extents = [4 5]} do {}", "expected ']' after the list, got '5'", "5");
  refused_op("  %a = neg %n : i32 at 12", "expected a file's name", "12");
  refused_op("  %a = neg %n : i32 at \"a\":0", "expected a line number from 1", "0");
}

TEST_CASE("malformed text is refused at its place: types") {
  refused_op("  %a = neg %n : i33", "expected a type, got 'i33'", "i33", "'i32'");
  refused_op("  %a = neg %n : quux", "expected a type, got 'quux'", "quux", "one of f16, bf16");
  refused_op("  %a = alloc : shared [4]", "expected an element type, got '['", "[4]");
  refused_op("  %a = alloc : shared f32", "expected '[' before the extents", "");
  refused_op("  %a = alloc : shared f32[?]", "expected an extent of a tile", "?");
  refused_op("  %a = alloc : shared f32[-1]", "expected an extent of a tile", "-1");
  refused_op("  %a = alloc : shared f32[4.0]", "expected an extent of a tile", "4.0");
  refused_op("  %a = alloc : shared f32[4", "expected ']' after the extents", "");
  refused_op("  %a = alloc : shared f32[4294967296, 4294967296]", "too many elements", "4294");
  refused_op("  %a = tensor {name = \"a\"} : tensor f32[-1]", "expected an extent: an integer, 0",
             "-1");
  refused_op("  %a = slice %n : view f32[1]", "expected 'global', 'shared', 'fragment' or 'local'",
             "f32");
}

TEST_CASE("malformed text is refused at its place: numbers of a const") {
  refused_op("  %a = const {value = 0.1} : f32", "0.1 has no exact representation in f32", "0.1",
             "0.10000000149011612");
  refused_op("  %a = const {value = 2049} : f16", "2049 has no exact representation in f16", "2049",
             "2048.0");
  refused_op("  %a = const {value = 1e39} : f32", "1e39 has no exact representation", "1e39");
  refused_op("  %a = const {value = inf} : e4m3", "inf has no exact representation in e4m3", "inf",
             "448.0");
  refused_op("  %a = const {value = 9007199254740993} : f64", "9007199254740993 has no exact",
             "9007");
  refused_op("  %a = const {value = 1.0} : i32", "expected an integer of type i32, got '1.0'",
             "1.0");
  refused_op("  %a = const {value = 128} : i8", "128 does not fit i8: expected -128 to 127", "128");
  refused_op("  %a = const {value = -129} : i8", "-129 does not fit i8", "-129");
  refused_op("  %a = const {value = -1} : u8", "-1 does not fit u8: expected 0 to 255", "-1");
  refused_op("  %a = const {value = 2} : bool", "2 does not fit bool: expected 0 to 1", "2}");
  refused_op("  %a = const {value = 9223372036854775808} : i64", "9223372036854775808 does not fit",
             "9223");
  refused_op("  %a = const {value = true} : i32", "expected a number of type i32, got 'true'",
             "true");
  refused_op("  %a = const {value = \"1\"} : i32", "expected a number for 'value', got a string",
             "\"1\"");
}

TEST_CASE("malformed text is refused at its place: tokens") {
  refused_op("  %a = const {value = 99999999999999999999} : i32",
             "this integer is out of the range", "9999");
  refused_op("  %a = const {value = 1e999} : f64", "this number is out of the range of a double",
             "1e999");
  for (const char* number : {"1.", "-", "1e", "1e+", "0x10", "1_000", "1.5.2", "--1", "12ab"})
    refused_op(std::string("  %a = const {value = ") + number + "} : f64", "malformed number",
               number);
  refused_op("  %a = dim {name = \"abc} : i32", "this string does not end on its line", "\"abc");
  refused_op("  %a = dim {name = \"a\\q\"} : i32", "unknown escape", "\\q");
  refused_op("  %a = dim {name = \"a\\x1\"} : i32", "unknown escape", "\\x1");
  refused_op("  % = neg %n : i32", "expected a name after '%'", "% =");
  refused_op("  /* no */", "unexpected character '/'", "/*");
  refused_op("  \x80", "unexpected byte 0x80", "\x80");
  // What is wrong first is told first, even if a later token on the line is no token at all.
  refused_op("  %a = ad $", "unknown op 'ad'", "ad");
}

TEST_CASE("excerpts align under tabs, UTF-8 and in long lines") {
  auto message = [](const std::string& text) {
    try {
      parse(text);
    } catch (const UserError& error) {
      return error.message();
    }
    return std::string();
  };
  CHECK(message("kernel @k {\n\tcopi \"\xC3\xA9\"\n}") ==
        "unknown op 'copi'\n\tcopi \"\xC3\xA9\"\n\t^");
  CHECK(message("kernel @k {\ncopy {pad = 1.0, \"\xC3\xA9\"}}").find("copy takes") == 0);
  CHECK(message("kernel @\"\xC3\xA9\" $").find("\nkernel @\"\xC3\xA9\" $\n            ^") !=
        std::string::npos);
  const std::string long_line =
      "kernel @k {" + std::string(5000, ' ') + "$" + std::string(5000, 'x');
  CHECK(message(long_line).size() < 400);
}

TEST_CASE("deep nesting is refused, not a stack overflow") {
  auto nested = [](int depth) {
    std::string text = "kernel @k {";
    for (int i = 0; i < depth; ++i) text += "parallel {extents = []} do {";
    for (int i = 0; i <= depth; ++i) text += "}";
    return text;
  };
  CHECK_NOTHROW(print(parse(nested(100))));
  refused(nested(100000), 1, "regions are nested deeper than 128", "{");
}

TEST_CASE("every prefix and every one-byte change of a text parses or is refused") {
  const std::string text = kSoftmax;
  auto survives = [](const std::string& changed) {
    try {
      const std::string once = print(parse(changed));
      if (print(parse(once)) != once) FAIL(changed);
    } catch (const UserError&) {
    }
  };
  for (size_t size = 0; size < text.size(); ++size) survives(text.substr(0, size));
  for (size_t i = 0; i < text.size(); ++i) {
    for (char c : {'\0', '"', '%', '{', '}', '_', '9', '-', '\xFF'}) {
      std::string changed = text;
      changed[i] = c;
      survives(changed);
    }
  }
}
