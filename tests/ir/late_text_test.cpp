#include <catch2/catch.hpp>
#include <set>

#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ir/walk.h"

using namespace kiln;

namespace {

// Every op of the late IR.
constexpr const char* kLate = R"(kernel @late {target = "sm_90a"} {
  %n = dim {name = "n"} : i32
  %x = tensor %n {name = "x"} : tensor f16[?, 64]
  %y = tensor %n {name = "y", role = output} : tensor f16[?, 64]
  %counter = tensor {name = "counter", role = workspace} : tensor i32[1]
  launch %n {warps = 8, shared = 16512} do |%bx: i32| {
    %channel.0 = channel {slots = 2, message = "done:bool row:i32", offset = 0, control = 16384} : channel f16[64, 64]
    %channel.1 = channel {slots = 1, message = "go:bool", control = 16448} : channel i32[]
    %const.0 = const {value = 0} : i32
    %const.1 = const {value = true} : bool
    %const.2 = const {value = 1.0} : f32
    roles {names = "producer consumer", warps = [1, 4], registers = [40, 216]} do {
      %push_begin.0 = push_begin %channel.0 : shared f16[64, 64]
      %slice.0 = slice %x, %bx, %const.0 : view global f16[64, 64]
      copy_async %slice.0, %push_begin.0
      push_end %channel.0, %push_begin.0, %const.1, %bx
      %push_begin.1 = push_begin %channel.1 : shared i32[]
      push_end %channel.1, %push_begin.1
    } do {
      %alloc.0 = alloc : fragment f32[64, 64]
      %alloc.1 = alloc : fragment f16[64, 64]
      %alloc.2 = alloc : fragment f32[64]
      %alloc.3 = alloc : fragment f32[64, 4]
      %alloc.4 = alloc : fragment f32[64]
      %pop.0 = pop %channel.1 : shared i32[]
      release %channel.1, %pop.0
      %next_tile.0 = next_tile %bx : i32
      %next_tile.1 = next_tile %next_tile.0, %counter : i32
      loop do {
        %pop.1 = pop %channel.0 : shared f16[64, 64]
        %message.0 = message %pop.1 {field = "done"} : bool
        exit_if %message.0 do {
          release %channel.0, %pop.1
        }
        %held.0 = held %channel.0 : shared f16[64, 64]
        %held.1 = held %channel.0 {which = oldest} : shared f16[64, 64]
        %gemm_async.0 = gemm_async %held.0, %pop.1, %alloc.0, %const.1 {transpose_b = true} : token
        %gemm_async.1 = gemm_async %alloc.1, %pop.1, %alloc.0 {transpose_a = true} : token
        await %gemm_async.1
        softmax_step %alloc.0, %alloc.2, %alloc.3, %alloc.1, %alloc.4, %const.2, %const.1
        scale_rows %alloc.0, %alloc.4
        %slice.1 = slice %y, %bx, %const.0 : view global f16[64, 64]
        store_async %held.1, %slice.1 {split = warps}
        store_async %held.1, %slice.1
        await_stores {pending = 1, read = true}
        await_stores
        release %channel.0, %held.1
      }
    }
  }
}
)";

}  // namespace

TEST_CASE("late: a text with every op is given back by print, and keeps the rules", "[late]") {
  const Kernel kernel = parse(kLate);
  CHECK(print(kernel) == kLate);
  CHECK_NOTHROW(verify(kernel));
  CHECK(first_late_op(kernel)->code == OpCode::Channel);
  CHECK_FALSE(first_late_op(Kernel("none")));
  std::set<OpCode> found;
  walk(kernel, kernel.body, [&](OpId id) { found.insert(kernel.op(id).code); });
  for (const OpInfo& op : op_table()) {
    INFO(op.name);
    if (op.code >= OpCode::Roles && op.code <= OpCode::NextTile) CHECK(found.contains(op.code));
  }
}
