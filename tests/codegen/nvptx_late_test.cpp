// Roles, channels and copies by tensor maps on a GPU: what they become, and that ptxas takes it.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "codegen/bulk_copy_impl.h"
#include "ir/error.h"
#include "ir/layout/fragments.h"
#include "ir/layout/reshape.h"
#include "ir/layout/shared.h"
#include "ir/layout/text.h"
#include "ir/parse.h"
#include "ir/verify.h"
#include "ir/walk.h"
#include "tests/codegen/nvptx_support.h"
#include "tests/support/late_file.h"

using namespace kiln;
using namespace kiln::testing;
using Catch::Matchers::Contains;

namespace {

constexpr const char* kTarget = "sm_90a";

std::string ptx_of(const Kernel& kernel) {
  verify(kernel);
  const std::string ptx = compile_ptx(kernel).ptx;
  CHECK(assembly_fault(ptx, kTarget) == "");
  CHECK(occurrences(ptx, ".local") == 0);
  return ptx;
}

// A thread copies a part of x into a slot; another, or four warps, stores it to that part of y.
struct Ring {
  DType dtype = F16;
  Shape tensor = {kDynamic, 64};
  Shape part = {64, 64};  // of x
  Shape slot = {64, 64};
  int panel = 128;               // 0: rows one after another
  std::vector<int64_t> at = {};  // in the tensor, constants instead of the block's index
  std::string split = "none";

  std::string layout() const {
    const int bytes = static_cast<int>(size_of(dtype));
    return layout_text(panel ? swizzled(slot, bytes, panel) : row_major(slot));
  }
  std::string text() const {
    std::string dims, extents, index, type;
    for (size_t axis = 0; axis < tensor.size(); ++axis) {
      const bool dynamic = tensor[axis] == kDynamic;
      if (dynamic) {
        dims += fmt::format("  %d{0} = dim {{name = \"d{0}\"}} : i32\n", axis);
        extents += fmt::format("{}%d{}", extents.empty() ? "" : ", ", axis);
      }
      const bool last = axis + 1 == tensor.size();
      index += at.empty() ? last ? ", %zero" : ", %i" : fmt::format(", %at{}", axis);
      if (!at.empty())
        dims += fmt::format("  %at{} = const {{value = {}}} : i32\n", axis, at[axis]);
    }
    const int64_t ring =
        2 * parse_layout(layout()).extent(Resource::Offset) * static_cast<int64_t>(size_of(dtype));
    return fmt::format(R"ir(kernel @ring {{target = "sm_90a"}} {{
{0}  %zero = const {{value = 0}} : i32
  %one = const {{value = 1}} : i32
  %x = tensor {1} {{name = "x"}} : {2}
  %y = tensor {1} {{name = "y", role = inout}} : {2}
  launch %one {{warps = 8, shared = {3}}} do |%i: i32| {{
    %ring = channel {{slots = 2, layout = "{4}", offset = 0, control = {5}}} : {6}
    roles {{names = "load store", warps = [1, {11}], registers = [40, 216]}} do {{
      %s = push_begin %ring : {7}
      %from = slice %x{8} : {9}
      copy_async %from, %s
      push_end %ring, %s
    }} do {{
      %t = pop %ring : {7}
      %to = slice %y{8} : {9}
      store_async %t, %to {{split = {10}}}
      await_stores
      release %ring, %t
    }}
  }}
}}
)ir",
                       dims, extents, str(Type::tensor(dtype, tensor)), ring + 32, layout(), ring,
                       str(Type::channel(dtype, slot)), str(Type::tile(Space::Shared, dtype, slot)),
                       index, str(Type::view(Space::Global, dtype, part)), split,
                       split == "warps" ? 4 : 1);
  }
  Kernel kernel() const { return parse(text()); }
};

const Op& launch_of(const Kernel& kernel) {
  for (OpId id : kernel.region(kernel.body).ops)
    if (kernel.op(id).code == OpCode::Launch) return kernel.op(id);
  throw InternalError("no launch");
}

std::vector<const Op*> ops_of(const Kernel& kernel, OpCode code) {
  std::vector<const Op*> found;
  walk(kernel, kernel.body, [&](OpId id) {
    if (kernel.op(id).code == code) found.push_back(&kernel.op(id));
  });
  return found;
}

// Moves the boxes of a copy as the hardware does, for all its warps: each element of the view must
// come to the place in the tile that the layout says, and nothing else be moved.
std::string difference(const Kernel& kernel, const Op& op, int64_t warps, const Layout& layout) {
  const BulkCopy copy = bulk_copy(kernel, op, warps);
  const Type& view = kernel.type(copy.view);
  const auto bytes = static_cast<int64_t>(size_of(view.dtype));
  const auto panel_bytes = static_cast<int>(copy.map.panel * bytes);
  const size_t last = view.shape.size() - 1;
  std::vector<size_t> order;  // of axes after the columns of a panel; `last`: the panels
  for (size_t axis = last; axis-- > 0;) {
    order.push_back(axis);
    if (copy.map.by_panels && axis + 1 == last) order.push_back(last);
  }
  int64_t moved = 0;
  for (int64_t warp = 0; warp < copy.warps; ++warp)
    for (const BulkPiece& piece : copy.pieces) {
      int64_t count = copy.map.panel;
      for (size_t axis : order) count *= copy.map.box[axis] / (axis == last ? copy.map.panel : 1);
      for (int64_t i = 0; i < count; ++i) {
        std::vector<int64_t> at = piece.at;
        int64_t rest = i / copy.map.panel;
        at[last] += i % copy.map.panel;
        for (size_t axis : order) {
          const int64_t unit = axis == last ? copy.map.panel : 1;
          const int64_t extent = copy.map.box[axis] / unit;
          at[axis] += rest % extent * unit;
          rest /= extent;
        }
        if (copy.warps > 1) at[copy.row_axis] += warp * copy.warp_rows;
        const int64_t linear = piece.offset + warp * copy.warp_bytes + i * bytes;
        const int64_t place = swizzle_address(linear, panel_bytes);
        Coordinate inner;  // extents of 1 dropped, as copy pairs axes
        for (size_t axis = 0; axis <= last; ++axis) {
          if (at[axis] < 0 || at[axis] >= view.shape[axis]) return "outside the view";
          if (view.shape[axis] != 1) inner.push_back(at[axis]);
        }
        Coordinate tile;
        size_t next = inner.size();
        for (size_t k = layout.shape().size(); k-- > 0;)
          tile.insert(tile.begin(), layout.shape()[k] == 1 || next == 0 ? 0 : inner[--next]);
        if (layout.owner(tile).offset * bytes != place)
          return fmt::format("{} is at {}, not {}", tuple_text(at), place,
                             layout.owner(tile).offset * bytes);
        ++moved;
      }
    }
  return moved == count(view.shape) && copy.bytes * copy.warps == moved * bytes
             ? ""
             : fmt::format("{} elements moved", moved);
}

}  // namespace

TEST_CASE("A ring becomes barriers, one copy a slot and an exchange of registers",
          "[nvptx][late]") {
  const std::string ptx = ptx_of(late_kernel(KILN_TESTS_DIR, "copy_ring.tile"));
  CHECK(occurrences(ptx, ".reqntid 256") == 1);
  CHECK(occurrences(ptx, ".minnctapersm 2") == 1);  // 40 + 216 registers: two blocks fit
  CHECK(occurrences(ptx, "setmaxnreg.dec.sync.aligned.u32 \t40") == 1);
  CHECK(occurrences(ptx, "setmaxnreg.inc.sync.aligned.u32 \t216") == 1);
  CHECK(occurrences(ptx, "mbarrier.init") == 6);
  CHECK(occurrences(ptx, "fence.mbarrier_init.release.cluster") == 1);
  CHECK(occurrences(ptx, "mbarrier.try_wait.parity") == 2);
  CHECK(occurrences(ptx, "cp.async.bulk.tensor.2d.shared::cluster.global") == 1);
  // The bytes are announced with the arrival.
  CHECK(occurrences(ptx, "mbarrier.arrive.expect_tx") == 1);
  CHECK(occurrences(ptx, "mbarrier.expect_tx") == 0);
  CHECK(occurrences(ptx, "mbarrier.arrive.shared") == 1);
  CHECK(occurrences(ptx, ".param .align 64 .b8") == 1);
}

TEST_CASE("Warps store their rows from a slot, which is kept meanwhile", "[nvptx][late]") {
  const std::string ptx = ptx_of(late_kernel(KILN_TESTS_DIR, "dead_slot.tile"));
  CHECK(occurrences(ptx, "cp.async.bulk.tensor.3d.shared::cluster.global") == 1);
  CHECK(occurrences(ptx, "cp.async.bulk.tensor.2d.global.shared::cta") == 2);  // a panel each
  CHECK(occurrences(ptx, "cp.async.bulk.commit_group") == 1);
  CHECK(occurrences(ptx, "cp.async.bulk.wait_group.read") == 2);
  CHECK(occurrences(ptx, "cp.async.bulk.wait_group \t0") == 1);  // at the role's end
  CHECK(occurrences(ptx, "fence.proxy.async.shared::cta") == 2);
  CHECK(occurrences(ptx, "bar.sync \t1") == 0);
}

TEST_CASE("Messages are vectors, and a loop has two exits", "[nvptx][late]") {
  const std::string ptx = ptx_of(late_kernel(KILN_TESTS_DIR, "messages.tile"));
  CHECK(occurrences(ptx, "st.shared.v4.b32") == 2);
  const size_t behind_barriers = occurrences(ptx, "+4160]");  // control + 16 · 4 slots
  CHECK(behind_barriers == 4);  // a word of bools and one i32, written twice and read twice
  CHECK(occurrences(ptx, "mbarrier.try_wait.parity") == 4);
  CHECK(occurrences(ptx, "mbarrier.arrive.expect_tx") == 1);
  CHECK(occurrences(ptx, ".pragma \"nounroll\"") >= 2);
}

TEST_CASE("The boxes of tensor maps", "[nvptx][late]") {
  struct Case {
    Ring ring;
    std::vector<int64_t> box;
    bool by_panels;
    size_t instructions;
  };
  const Case cases[] = {
      {{}, {64, 64}, false, 1},
      {{.tensor = {kDynamic, 128}, .part = {64, 128}, .slot = {64, 128}}, {64, 128}, true, 1},
      // A part of a row, or a row of unknown length: a panel each.
      {{.tensor = {kDynamic, 256}, .part = {64, 128}, .slot = {64, 128}}, {64, 64}, false, 2},
      {{.tensor = {kDynamic, kDynamic}, .part = {64, 128}, .slot = {64, 128}}, {64, 64}, false, 2},
      {{.tensor = {2, 3, kDynamic, 128}, .part = {1, 1, 128, 128}, .slot = {128, 128}},
       {1, 1, 128, 128},
       true,
       1},
      // Heads between the rows.
      {{.tensor = {kDynamic, 4, 128}, .part = {64, 1, 128}, .slot = {64, 128}},
       {64, 1, 64},
       false,
       2},
      {{.tensor = {kDynamic, 64}, .part = {512, 64}, .slot = {512, 64}}, {256, 64}, false, 2},
      {{.tensor = {2, 2, 2, kDynamic, 128}, .part = {1, 1, 1, 64, 128}, .slot = {64, 128}},
       {1, 1, 1, 64, 64},
       false,
       2},
      {{.dtype = F32, .tensor = {kDynamic, 16}, .part = {64, 16}, .slot = {64, 16}, .panel = 64},
       {64, 16},
       false,
       1},
      {{.tensor = {3, kDynamic, 128}, .part = {2, 64, 128}, .slot = {2, 64, 128}},
       {2, 64, 128},
       true,
       1},
      {{.tensor = {3, kDynamic, kDynamic}, .part = {2, 64, 128}, .slot = {2, 64, 128}},
       {1, 64, 64},
       false,
       4},
      // Rows that do not fill a pattern leave a gap behind each panel.
      {{.tensor = {kDynamic, 128}, .part = {12, 128}, .slot = {12, 128}}, {12, 64}, false, 2},
  };
  for (const Case& test : cases) {
    INFO(test.ring.text());
    const Kernel kernel = test.ring.kernel();
    verify(kernel);
    const Op& copy = *ops_of(kernel, OpCode::CopyAsync)[0];
    const BulkCopy made = bulk_copy(kernel, copy, 1);
    CHECK(made.map.box == test.box);
    CHECK(made.map.by_panels == test.by_panels);
    CHECK(made.pieces.size() == test.instructions);
    CHECK(difference(kernel, copy, 1, parse_layout(test.ring.layout())) == "");
    // The store takes the same map of another tensor.
    const std::vector<Slot> slots = slots_of(kernel, launch_of(kernel));
    REQUIRE(slots.size() >= 2);
    CHECK(slots[0] == Slot{Slot::Kind::Map, "x", 0, made.map});
    CHECK(slots[1] == Slot{Slot::Kind::Map, "y", 0, made.map});
    const std::string ptx = ptx_of(kernel);
    CHECK(occurrences(ptx, "mbarrier::complete_tx::bytes") == test.instructions);
    CHECK(occurrences(ptx, "bulk_group [") == test.instructions);
  }
}

TEST_CASE("Boxes put every element where the layout says", "[nvptx][late]") {
  Random random;
  for (int round = 0; round < 60; ++round) {
    Ring ring;
    ring.dtype = random.of<DType>({F16, F32, I8});
    const auto bytes = static_cast<int64_t>(size_of(ring.dtype));
    ring.panel = random.of<int>({32, 64, 128});
    const int64_t columns = ring.panel / bytes * random(1, 3);
    const bool warps = random.coin();
    const int64_t rows = warps           ? 32 * random(1, 10)
                         : random.coin() ? random(1, 256)
                                         : 8 * random(1, 80);
    ring.split = warps ? "warps" : "none";
    ring.slot = {rows, columns};
    ring.part = ring.slot;
    ring.tensor = {kDynamic, random.coin() ? columns : kDynamic};
    if (random.coin()) {  // heads
      const auto axis = static_cast<ptrdiff_t>(random.below(2));
      ring.tensor.insert(ring.tensor.begin() + axis, 4);
      ring.part.insert(ring.part.begin() + axis, 1);
    }
    if (!warps && random.coin() && rows * columns * bytes < 20000) {  // several tiles a slot
      const int64_t tiles = random(2, 4);
      ring.slot.insert(ring.slot.begin(), tiles);
      ring.part.insert(ring.part.begin(), tiles);
      ring.tensor.insert(ring.tensor.begin(), 5);
    }
    INFO(ring.text());
    const Kernel kernel = ring.kernel();
    const Layout layout = parse_layout(ring.layout());
    CHECK(difference(kernel, *ops_of(kernel, OpCode::CopyAsync)[0], 1, layout) == "");
    CHECK(difference(kernel, *ops_of(kernel, OpCode::StoreAsync)[0], 4, layout) == "");
  }
}

TEST_CASE("Copies of one tensor share a map", "[nvptx][late]") {
  const Kernel kernel = late_kernel(KILN_TESTS_DIR, "block_sparse_d128.tile");
  const GpuCode code = compile_ptx(kernel);
  const std::vector<GpuLaunch>& launches = code.launches;
  REQUIRE(launches.size() == 2);
  std::vector<std::string> maps;
  for (const Slot& slot : launches[1].slots)
    if (slot.kind == Slot::Kind::Map) maps.push_back(slot.name);
  CHECK(maps == std::vector<std::string>{"v", "q", "k", "o"});
  CHECK(launches[1].threads == 384);
  CHECK(occurrences(code.ptx, "atom.global.add") == 2);  // the tile after the first, and the next
  CHECK(assembly_fault(code.ptx, kTarget) == "");
}

TEST_CASE("What asynchronous copies cannot do is said", "[nvptx][late]") {
  const auto compile = [](const Ring& ring) { compile_ptx(ring.kernel()); };
  CHECK_THROWS_WITH(compile({.panel = 0}), Contains("not of swizzled panels"));
  CHECK_THROWS_WITH(
      compile({.tensor = {kDynamic, 64}, .part = {48, 64}, .slot = {48, 64}, .split = "warps"}),
      Contains("48 rows for 4 warps: each needs a multiple of 8"));
  std::string text = Ring{}.text();
  const std::string from = "copy_async %from", inner = R"(%inner = slice %from, %zero, %zero : )"
                                                       R"(view global f16[64, 64]
      copy_async %inner)";
  text.replace(text.find(from), from.size(), inner);
  CHECK_THROWS_WITH(compile_ptx(parse(text)), Contains("a slice of a tensor itself"));
}

TEST_CASE("What a text chooses is its writer's fault", "[nvptx][late]") {
  const auto refused = [](const std::string& body, const std::string& message) {
    const std::string text = fmt::format(R"(kernel @k {{target = "sm_90a"}} {{
  %y = tensor {{name = "y", role = output}} : tensor f16[64, 64]
  %one = const {{value = 1}} : i32
  launch %one {{warps = 4, shared = 32768}} do |%block: i32| {{
    %zero = const {{value = 0.0}} : f32
    %f = alloc {{layout = "{}"}} : fragment f16[64, 64]
    fill %zero, %f
{}  }}
}}
)",
                                         layout_text(wgmma_accumulator(64, 64, 1)), body);
    INFO(text);
    CHECK_THROWS_AS(compile_ptx(parse(text)), UserError);
    CHECK_THROWS_WITH(compile_ptx(parse(text)), Contains(message));
  };
  const std::string await = "    await_stores\n";
  const std::string other = layout_text(blocked({64, 64}, 4, 2));
  refused(fmt::format("    %g = alloc {{layout = \"{}\"}} : fragment f16[64, 64]\n"
                      "    copy %f, %g\n",
                      other) +
              await,
          "a thread lacks elements");
  refused(fmt::format("    %s = alloc {{layout = \"{}\", offset = 512}} : shared f16[64, 64]\n"
                      "    copy %f, %s\n    store_async %s, %y\n",
                      layout_text(swizzled({64, 64}, 2, 128))) +
              await,
          "an offset that is a multiple of 1024, got 512");
  const std::string reduced =
      fmt::format("    %r = alloc {{layout = \"{}\"}} : fragment f16[64]\n",
                  layout_text(plan_reduction(wgmma_accumulator(64, 64, 1), 0)->result));
  refused(reduced + "    reduce %f, %r {kind = sum, dim = 0}\n" + await,
          "expected a scratch tile of extents (4, 64), got none");
  refused(reduced +
              fmt::format("    %s = alloc {{layout = \"{}\", offset = 0}} : shared f32[2, 64]\n",
                          layout_text(row_major({2, 64}))) +
              "    reduce %f, %r, %s {kind = sum, dim = 0}\n" + await,
          "expected a scratch tile of extents (4, 64), got shared f32[2, 64]");
}

TEST_CASE("Roles take no more registers than a launch has", "[nvptx][late]") {
  std::string text = Ring{}.text();
  const std::string registers = "[40, 216]";
  text.replace(text.find(registers), registers.size(), "[40, 240]");
  CHECK_THAT(compile_ptx(parse(text)).ptx, Contains(".minnctapersm 1"));
  std::string wide = text;
  wide.replace(wide.find("[40, 240]"), registers.size(), "[256, 256]");
  wide.replace(wide.find("[1, 1]"), 6, "[4, 8]");
  wide.replace(wide.find("warps = 8"), 9, "warps = 12");
  CHECK_THROWS_WITH(compile_ptx(parse(wide)), Contains("expected at most 504"));
  wide.replace(wide.find("warps = 12"), 10, "warps = 8");
  CHECK_THROWS_WITH(compile_ptx(parse(wide)), Contains("launch: warps: expected 12"));
}
