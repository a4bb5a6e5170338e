#include "codegen/nvptx_matrix_impl.h"

#include <fmt/format.h>

#include "codegen/nvptx_shared_impl.h"
#include "ir/error.h"
#include "ir/layout/shared.h"
#include "ir/walk.h"

namespace kiln::nvptx {
namespace {

constexpr int64_t kBytes = 2;            // of an element
constexpr int64_t kPatternRows = 8;      // of a swizzle
constexpr int64_t kStep = 16;            // of k that one instruction takes
constexpr int64_t kAddresses = 1 << 18;  // that a descriptor can hold

int64_t panel_of(const Layout& layout) {
  for (const int panel : {128, 64, 32})
    if (layout.rank() >= 2 && layout == swizzled(layout.shape(), kBytes, panel)) return panel;
  return 0;
}

int64_t padded(int64_t extent, int64_t multiple) {
  return (extent + multiple - 1) / multiple * multiple;
}

}  // namespace

SharedMatrix::SharedMatrix(Emitter& emitter, const Op& op, const char* name, Value storage,
                           bool k_last)
    : e(emitter), b(emitter.b), op_(op), name_(name), k_last_(k_last) {
  const Place place = e.place(storage);
  if (place.space != Space::Shared || size_of(place.dtype) != kBytes)
    refuse("a shared tile of f16 or bf16");
  const Layout& layout = *place.layout;
  panel_ = panel_of(layout);
  if (panel_ == 0) refuse("in swizzled panels of 128, 64 or 32 bytes");
  check_alignment(storage);
  const size_t rank = place.axes.size();
  const int64_t columns = panel_ / kBytes;  // of a panel
  stride_ = padded(layout.shape()[rank - 2], kPatternRows) * panel_;
  int64_t stride = padded(layout.shape()[rank - 1], columns) / columns * stride_;

  auto& ir = b.ir;
  Val moved = b.i32(0);  // by what is known at run time
  for (size_t axis = rank - 2; axis-- > 0; stride *= layout.shape()[axis]) {
    if (place.axes[axis].size != 1) refuse("a matrix, but for extents of 1 in front");
    moved = ir.CreateAdd(moved, ir.CreateMul(place.axes[axis].start, b.i32(stride)));
  }
  for (size_t axis = rank - 2; axis < rank; ++axis) {
    const bool last = axis + 1 == rank;
    Val start = place.axes[axis].start;
    size_.push_back(place.axes[axis].size);
    if (!place.axes[axis].surely_inside()) refuse("a view that lies inside its tile");
    if (auto* known = llvm::dyn_cast<llvm::ConstantInt>(start)) {
      fixed_.push_back(known->getSExtValue());
      const int64_t step = !last ? kPatternRows : k_last ? kStep : columns;
      if (fixed_.back() % step != 0)
        refuse(fmt::format("a view whose {} begin at a multiple of {}", last ? "columns" : "rows",
                           step));
      continue;
    }
    const int64_t step = last ? columns : kPatternRows;
    if (known_divisor(start) % step != 0)
      refuse(fmt::format("a view whose {} surely begin at a multiple of {}",
                         last ? "columns" : "rows", step));
    fixed_.push_back(0);
    moved = ir.CreateAdd(
        moved, last ? ir.CreateMul(ir.CreateUDiv(start, b.i32(columns), "", true), b.i32(stride_))
                    : ir.CreateMul(start, b.i32(panel_)));
  }
  if (rows() % 8 != 0 || depth() % kStep != 0)
    refuse(
        fmt::format("of multiples of 8 rows and {} of k, not {} and {}", kStep, rows(), depth()));
  Val address = ir.CreateAdd(ir.CreatePtrToInt(place.pointer, ir.getInt32Ty()), moved);
  // The distance of panels counts where they lie side by side along the rows.
  const int64_t distance = k_last ? 1 : stride_ >> 4;
  low_ = ir.CreateOr(ir.CreateLShr(ir.CreateAnd(address, b.i32(kAddresses - 1)), b.i32(4)),
                     b.i32(distance << 16));
}

void SharedMatrix::refuse(const std::string& what) const {
  throw UserError(op_.loc, fmt::format("gemm_async: operand '{}' must be {}", name_, what),
                  "see the layouts of shared tiles: swizzled panels, each with all rows");
}

// Swizzles are of addresses.
void SharedMatrix::check_alignment(Value storage) const {
  const Kernel& kernel = e.kernel();
  const Op* owner = &kernel.op(kernel.def(base_of(kernel, storage)));
  if (owner->code != OpCode::Alloc) owner = &kernel.op(kernel.def(owner->operands[0]));
  const int64_t unit = swizzle_alignment(static_cast<int>(panel_));
  if (owner->integer("offset") % unit != 0)
    refuse(fmt::format("at an offset that is a multiple of {}", unit));
}

// The low word depends on the warp, but is the same for all lanes. redux says so to ptxas, which
// then keeps descriptors in uniform registers instead of moving each there.
void SharedMatrix::split_rows(int64_t count) {
  auto& ir = b.ir;
  Val group = ir.CreateLShr(e.warp(), b.i32(2));
  const int64_t distance = bytes_to(count, 0) - bytes_to(0, 0);
  low_ = ir.CreateAdd(low_, ir.CreateMul(group, b.i32(distance >> 4)));
  low_ = b.call(llvm::Intrinsic::nvvm_redux_sync_umax, {low_, b.i32(-1)});
}

int64_t SharedMatrix::bytes_to(int64_t row, int64_t k) const {
  const int64_t columns = panel_ / kBytes;
  const int64_t line = fixed_[0] + (k_last_ ? row : k), column = fixed_[1] + (k_last_ ? k : row);
  return column / columns * stride_ + line * panel_ + column % columns * kBytes;
}

Val SharedMatrix::descriptor(int64_t row, int64_t k) {
  auto& ir = b.ir;
  const int64_t swizzle = panel_ == 128 ? 1 : panel_ == 64 ? 2 : 3;
  const int64_t high = swizzle << 30 | kPatternRows * panel_ >> 4;
  Val low = ir.CreateAdd(low_, b.i32(bytes_to(row, k) >> 4));
  Val words = llvm::ConstantVector::get({ir.getInt32(0), ir.getInt32(static_cast<uint32_t>(high))});
  return ir.CreateBitCast(ir.CreateInsertElement(words, low, uint64_t{0}), ir.getInt64Ty());
}

}  // namespace kiln::nvptx
