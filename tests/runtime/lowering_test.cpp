// Kernels of the late IR on their way to a device: as they are, or refused with the reason.
#include "runtime/lowering.h"

#include <catch2/catch.hpp>

#include "ir/error.h"
#include "ir/print.h"
#include "ir/walk.h"
#include "tests/support/late_file.h"

using namespace kiln;
using testing::late_kernel;

namespace {

// "line: message" of the error that lowering for the GPU gives.
std::string refusal(const Kernel& kernel, std::string_view target = "sm_90a") {
  try {
    lowered(kernel, Tier::Sm80, target);
  } catch (const UserError& error) {
    return error.message();
  }
  return "none";
}

// The kernel with an attribute taken from the first op of that code that has it.
Kernel without(Kernel kernel, OpCode code, const char* attribute) {
  bool done = false;
  walk(kernel, kernel.body, [&](OpId id) {
    Op& op = kernel.op(id);
    if (done || op.code != code || !op.attrs.find(attribute)) return;
    op.attrs.erase(attribute);
    done = true;
  });
  REQUIRE(done);
  return kernel;
}

}  // namespace

TEST_CASE("lowering: a kernel of the late IR is taken as it is", "[lowering]") {
  for (const char* name : {"block_sparse_d128.tile", "copy_ring.tile", "gemm.tile"}) {
    const Kernel kernel = late_kernel(KILN_TESTS_DIR, name);
    CHECK(print(lowered(kernel, Tier::Sm80, "sm_90a")) == print(kernel));
  }
}

TEST_CASE("lowering: on the host only its softmax is expanded", "[lowering]") {
  const Kernel kernel = late_kernel(KILN_TESTS_DIR, "block_sparse_d128.tile");
  const Kernel host = lowered(kernel, Tier::Host);
  CHECK(host.target.empty());
  int steps = 0, gemms = 0;
  walk(host, host.body, [&](OpId id) {
    steps += host.op(id).code == OpCode::SoftmaxStep || host.op(id).code == OpCode::ScaleRows;
    gemms += host.op(id).code == OpCode::GemmAsync;
  });
  CHECK(steps == 0);
  CHECK(gemms > 0);
  const Kernel ring = late_kernel(KILN_TESTS_DIR, "copy_ring.tile");
  Kernel expected = ring;
  expected.target.clear();
  CHECK(print(lowered(ring, Tier::Host)) == print(expected));
}

TEST_CASE("lowering: the late IR needs its GPU, layouts and places", "[lowering]") {
  const Kernel kernel = late_kernel(KILN_TESTS_DIR, "copy_ring.tile");
  CHECK(refusal(kernel) == "none");
  CHECK(refusal(kernel, "sm_90") ==
        "kernel 'copy_ring' is scheduled for sm_90a, the device's code is for sm_90");
  Kernel elsewhere = kernel;
  const std::string expected = "channel: expected a kernel with {target = \"sm_90a\"}, got ";
  elsewhere.target.clear();
  CHECK(refusal(elsewhere) == expected + "none");
  elsewhere.target = "sm_80";
  CHECK(refusal(elsewhere, "sm_80") == expected + "sm_80");
  const std::string rest =
      "; expected one, as no pass runs on a kernel with roles or asynchronous ops";
  CHECK(refusal(without(kernel, OpCode::Launch, "warps")) == "launch: has no warps" + rest);
  CHECK(refusal(without(kernel, OpCode::Channel, "layout")) == "channel: has no layout" + rest);
  CHECK(refusal(without(kernel, OpCode::Channel, "offset")) == "channel: has no offset" + rest);
  CHECK(refusal(without(kernel, OpCode::Channel, "control")) == "channel: has no control" + rest);
  CHECK(refusal(without(kernel, OpCode::Alloc, "layout")) == "alloc: has no layout" + rest);
  CHECK(refusal(without(kernel, OpCode::Parallel, "layout")) == "parallel: has no layout" + rest);
}

TEST_CASE("lowering: other kernels go through their tier's passes", "[lowering]") {
  const Kernel kernel = parse(R"(kernel @k {target = "sm_80"} {
  %y = tensor {name = "y", role = output} : tensor f32[4]
  %one = const {value = 1} : i32
  launch %one do |%b: i32| {
    %z = const {value = 1.0} : f32
    fill %z, %y
  }
})");
  CHECK(lowered(kernel, Tier::Sm80, "sm_90").target == "sm_90");
  CHECK(lowered(kernel, Tier::Host).target.empty());
}
