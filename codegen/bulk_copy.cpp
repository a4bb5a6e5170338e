// The box of a map grows along its axes, innermost first, for as long as what comes next in the
// tensor also comes next in shared memory; along the others there is an instruction for each step.
#include "codegen/bulk_copy_impl.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/roles_impl.h"
#include "ir/error.h"
#include "ir/layout/shared.h"
#include "ir/layout/text.h"
#include "ir/walk.h"

namespace kiln {
namespace {

constexpr int64_t kMostBox = 256;  // extent of a box (PTX ISA, "Tensor Data Movement")
constexpr size_t kMostAxes = 5;    // of a map
constexpr int64_t kPatternRows = 8;

// One axis of the map, and how far apart its steps are in shared memory.
struct MapAxis {
  size_t axis = 0;       // of the tensor
  int64_t unit = 1;      // elements of the tensor's axis: a panel's columns, or 1
  int64_t extent = 1;    // steps that one warp copies
  int64_t distance = 0;  // bytes
  int64_t box = 1;       // steps of one instruction
};

class Derivation {
 public:
  Derivation(const Kernel& kernel, const Op& op, int64_t warps)
      : kernel_(kernel), op_(op), load_(op.code == OpCode::CopyAsync) {
    copy_.view = op.operands[load_ ? 0 : 1];
    if (!load_ && op.word("split") == "warps") copy_.warps = warps;
  }

  BulkCopy run() {
    read_shared_side();
    read_tensor_side();
    pair_axes();
    split_rows();
    if (!grow(true)) grow(false);
    make_pieces();
    return std::move(copy_);
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& hint = "") const {
    throw UserError(op_.loc, fmt::format("{}: {}", info(op_.code).name, what), hint);
  }

  void read_shared_side() {
    Value here = op_.operands[load_ ? 1 : 0];
    extents_ = kernel_.type(here).shape;
    offsets_.assign(extents_.size(), 0);
    while (const Op* slice = kernel_.def_as(here, OpCode::Slice)) {
      for (size_t k = 0; k < offsets_.size(); ++k) {
        const auto at = constant_int(kernel_, slice->operands[1 + k]);
        if (!at) fail("a part of a shared tile at an index that is not constant");
        offsets_[k] += *at;
      }
      here = slice->operands[0];
    }
    copy_.tile = here;
    const Type& type = kernel_.type(here);
    const Op* owner = channel_of(kernel_, here);
    if (!owner) owner = kernel_.def_as(here, OpCode::Alloc);
    if (!owner || type.space != Space::Shared) fail("expected a shared tile or a slot");
    shape_ = type.shape;
    bytes_ = static_cast<int64_t>(size_of(type.dtype));
    const std::string& text = owner->word("layout");
    for (const int panel : {128, 64, 32}) {
      if (shape_.size() < 2 || text.empty() || shape_.back() * bytes_ % panel != 0) continue;
      if (parse_layout(text) != swizzled(shape_, static_cast<int>(bytes_), panel)) continue;
      panel_bytes_ = panel;
    }
    if (panel_bytes_ == 0)
      fail(fmt::format("{}: its layout is not of swizzled panels", str(type)),
           "rows of a multiple of 32 bytes, and the layout `swizzled` of 128, 64 or 32 bytes");
    if (const int64_t unit = swizzle_alignment(panel_bytes_); owner->integer("offset") % unit > 0)
      fail(fmt::format("{}: expected it at an offset that is a multiple of {}, got {}", str(type),
                       unit, owner->integer("offset")));
    panel_ = copy_.map.panel = panel_bytes_ / bytes_;
    for (size_t k = 0; k < extents_.size(); ++k)
      if (offsets_[k] < 0 || offsets_[k] + extents_[k] > shape_[k])
        fail(fmt::format("{} sticks out of its tile {}", str(kernel_.type(op_.operands[load_])),
                         str(type)));
  }

  void read_tensor_side() {
    const Op* slice = kernel_.def_as(copy_.view, OpCode::Slice);
    tensor_ = slice ? slice->operands[0] : copy_.view;
    const Type &type = kernel_.type(copy_.view), &tensor = kernel_.type(tensor_);
    if (tensor.kind != Kind::Tensor) fail("expected a tensor or a slice of a tensor itself");
    if (tensor.dtype != kernel_.type(copy_.tile).dtype)
      fail(fmt::format("from {} to {}: both must be of one dtype",
                       name(load_ ? tensor.dtype : kernel_.type(copy_.tile).dtype),
                       name(load_ ? kernel_.type(copy_.tile).dtype : tensor.dtype)));
    if (!is_static(type.shape)) fail(fmt::format("{}: its extents must be known", str(type)));
    if (type.shape.size() > kMostAxes)
      fail(fmt::format("a tensor of {} axes; expected at most {}", type.shape.size(), kMostAxes));
    view_ = type.shape;
    const size_t last = view_.size() - 1;
    whole_rows_ = view_.size() >= 2 && view_.size() < kMostAxes &&
                  tensor.shape.back() == view_.back() &&
                  (!slice || constant_int(kernel_, slice->operands[1 + last]) == 0);
  }

  // The axes of the tensor that are more than one step, and where in shared memory they go.
  void pair_axes() {
    const int64_t rows =
        (shape_[shape_.size() - 2] + kPatternRows - 1) / kPatternRows * kPatternRows;
    const int64_t panels = shape_.back() / panel_;
    std::vector<int64_t> distances(shape_.size());
    int64_t distance = panels * rows * panel_bytes_;
    for (size_t k = shape_.size() - 2; k-- > 0; distance *= shape_[k]) distances[k] = distance;
    distances[shape_.size() - 2] = panel_bytes_;
    panel_distance_ = rows * panel_bytes_;

    const size_t last = view_.size() - 1;
    bool pairs = view_[last] == extents_.back();
    size_t k = shape_.size() - 1;
    distances_.assign(view_.size(), 0);
    copy_.row_axis = last == 0 ? 0 : last - 1;
    for (size_t axis = last; axis-- > 0;) {
      if (view_[axis] == 1) continue;
      while (k > 0 && extents_[k - 1] == 1) --k;
      if (k == 0 || extents_[k - 1] != view_[axis]) {
        pairs = false;
        break;
      }
      --k;
      distances_[axis] = distances[k];
      if (k + 2 == shape_.size()) copy_.row_axis = axis;
    }
    while (k > 0 && extents_[k - 1] == 1) --k;
    if (!pairs || k != 0)
      fail(fmt::format("{} and {} differ in shape", str(kernel_.type(op_.operands[0])),
                       str(kernel_.type(op_.operands[1]))));
    if (view_[last] % panel_ != 0 || offsets_.back() % panel_ != 0)
      fail(fmt::format("{} columns of a tile whose panels have {}", view_[last], panel_));
    for (size_t i = 0; i + 1 < shape_.size(); ++i) start_ += offsets_[i] * distances[i];
    start_ += offsets_.back() / panel_ * panel_distance_;
  }

  void split_rows() {
    if (copy_.warps == 1) return;
    const int64_t rows = extents_[extents_.size() - 2];
    if (rows % copy_.warps != 0 || rows / copy_.warps % kPatternRows != 0)
      fail(fmt::format("{} rows for {} warps: each needs a multiple of {}", rows, copy_.warps,
                       kPatternRows));
    copy_.warp_rows = rows / copy_.warps;
    copy_.warp_bytes = copy_.warp_rows * panel_bytes_;
  }

  // Equal boxes, and each begins a pattern.
  int64_t widest_box(const MapAxis& axis) const {
    if (axis.extent <= kMostBox) return axis.extent;
    const int64_t unit = axis.distance == panel_bytes_ ? kPatternRows : 1;
    if (axis.extent % unit != 0)
      fail(fmt::format("{} rows: more than {} must be a multiple of {}", axis.extent, kMostBox,
                       unit));
    int64_t box = kMostBox;
    while (axis.extent % box != 0) box -= unit;
    return box;
  }

  // False if panels would be an axis of the map without need.
  bool grow(bool by_panels) {
    if (by_panels && !whole_rows_) return false;
    const size_t last = view_.size() - 1;
    const MapAxis panels{last, panel_, view_[last] / panel_, panel_distance_};
    axes_.clear();
    for (size_t axis = last; axis-- > 0;) {
      MapAxis made{axis, 1, view_[axis], distances_[axis]};
      if (axis == copy_.row_axis) made.extent /= copy_.warps;
      axes_.push_back(made);
      if (by_panels && axis + 1 == last) axes_.push_back(panels);
    }
    int64_t filled = panel_bytes_;
    for (MapAxis& axis : axes_) {
      if (axis.extent == 1) continue;
      if (axis.distance != filled) continue;
      axis.box = widest_box(axis);
      filled *= axis.box;
      if (axis.box < axis.extent) filled = -1;  // what follows is not the next step
    }
    const bool needed = by_panels && axes_[1].box > 1;
    if (!by_panels) axes_.push_back(panels);  // one after another
    copy_.map.by_panels = by_panels;
    return !by_panels || needed;
  }

  void make_pieces() {
    copy_.map.box.assign(view_.size(), 1);
    copy_.map.box.back() = panel_;
    BulkPiece first{std::vector<int64_t>(view_.size(), 0), start_};
    copy_.pieces = {first};
    int64_t bytes = panel_bytes_;
    for (const MapAxis& axis : axes_) {
      copy_.map.box[axis.axis] = axis.unit * axis.box;
      bytes *= axis.box;
      std::vector<BulkPiece> all;
      for (int64_t step = 0; step < axis.extent; step += axis.box)
        for (BulkPiece piece : copy_.pieces) {
          piece.at[axis.axis] += step * axis.unit;
          piece.offset += step * axis.distance;
          all.push_back(std::move(piece));
        }
      copy_.pieces = std::move(all);
    }
    for (const BulkPiece& piece : copy_.pieces)
      if (piece.offset % (kPatternRows * panel_bytes_) != 0)
        fail(fmt::format("a part of a tile that begins within a pattern of {} rows", kPatternRows));
    copy_.bytes = bytes * static_cast<int64_t>(copy_.pieces.size());
  }

  const Kernel& kernel_;
  const Op& op_;
  const bool load_;
  BulkCopy copy_;
  Value tensor_;
  Shape shape_, extents_, offsets_;  // of the shared tile, of the part copied, where that is
  Shape view_;                       // extents of the part of the tensor
  std::vector<int64_t> distances_;   // bytes in shared memory, by axis of the tensor
  int64_t bytes_ = 0, panel_ = 0, panel_bytes_ = 0, panel_distance_ = 0, start_ = 0;
  bool whole_rows_ = false;
  std::vector<MapAxis> axes_;  // of the map but the columns of a panel
};

bool is_bulk(const Op& op) {
  return op.code == OpCode::CopyAsync || op.code == OpCode::StoreAsync;
}

void collect(const Kernel& kernel, RegionId region, int64_t warps, std::vector<BulkOp>& found) {
  for (OpId id : kernel.region(region).ops) {
    const Op& op = kernel.op(id);
    if (is_bulk(op)) {
      BulkCopy copy = bulk_copy(kernel, op, warps);
      const Op& tensor = *kernel.def_as(base_of(kernel, copy.view), OpCode::Tensor);
      found.push_back({&op, {Slot::Kind::Map, tensor.word("name"), 0, std::move(copy.map)}});
    }
    for (size_t i = 0; i < op.regions.size(); ++i)
      collect(kernel, op.regions[i], op.code == OpCode::Roles ? op.ints("warps").at(i) : warps,
              found);
  }
}

}  // namespace

BulkCopy bulk_copy(const Kernel& kernel, const Op& op, int64_t warps) {
  return Derivation(kernel, op, warps).run();
}

std::vector<BulkOp> bulk_ops(const Kernel& kernel, const Op& launch) {
  std::vector<BulkOp> found;
  collect(kernel, launch.regions[0], launch.integer("warps"), found);
  return found;
}

}  // namespace kiln
