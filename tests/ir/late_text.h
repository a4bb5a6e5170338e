// A kernel of two roles and a ring between them, any part of which a test replaces: rows of x go to
// y, the end is told by a message.
#pragma once

#include <string>

namespace kiln::test {

inline constexpr const char* kSlot = " : shared f16[64, 64]\n";

struct LateText {
  std::string launch = "";  // attributes
  std::string ring = R"({slots = 2, message = "done:bool row:i32"})";
  std::string before = "";  // in the launch's region, before the roles
  std::string roles = R"({names = "producer consumer", warps = [1, 4], registers = [40, 216]})";
  std::string producer = R"(for %c0, %n, %c64 do |%row: i32| {
%slot = push_begin %ring : shared f16[64, 64]
%from = slice %x, %row, %c0 : view global f16[64, 64]
copy_async %from, %slot
push_end %ring, %slot, %no, %row
}
%end = push_begin %ring : shared f16[64, 64]
push_end %ring, %end, %yes, %c0
)";
  std::string consumer = R"(%t = alloc : fragment f16[64, 64]
loop do {
%full = pop %ring : shared f16[64, 64]
%done = message %full {field = "done"} : bool
%at = message %full {field = "row"} : i32
exit_if %done do {
release %ring, %full
}
copy %full, %t
release %ring, %full
%to = slice %y, %at, %c0 : view global f16[64, 64]
copy %t, %to
}
)";
  std::string after = "";  // the roles

  std::string str() const {
    return R"(kernel @test {
%n = dim {name = "n"} : i32
%x = tensor %n {name = "x"} : tensor f16[?, 64]
%y = tensor %n {name = "y", role = output} : tensor f16[?, 64]
%counter = tensor {name = "counter", role = workspace} : tensor i32[1]
%c1 = const {value = 1} : i32
launch %c1 )" +
           launch +
           R"(do |%bx: i32| {
%c0 = const {value = 0} : i32
%c64 = const {value = 64} : i32
%yes = const {value = true} : bool
%no = const {value = false} : bool
%zero = const {value = 0.0} : f16
%ring = channel )" +
           ring + " : channel f16[64, 64]\n" + before + "\nroles " + roles + " do {\n" + producer +
           "} do {\n" + consumer + "}\n" + after + "}\n}\n";
  }
};

// The consumer takes one slot, does `body` with it (%full), and the end.
inline std::string takes_one(const std::string& body) {
  return R"(%s = alloc : fragment f32[64, 64]
%u = alloc : fragment f32[64, 64]
%p = alloc : fragment f16[64, 64]
%full = pop %ring : shared f16[64, 64]
)" + body;
}

}  // namespace kiln::test
