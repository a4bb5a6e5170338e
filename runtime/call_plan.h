// A call by position, for launches that must cost little: names are looked up once, when the plan
// is made; a call compares, computes the few scalars of the top level and fills parameter slots.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "codegen/abi.h"
#include "ir/interp.h"
#include "runtime/device.h"
#include "runtime/launch.h"
#include "runtime/signature.h"

namespace kiln {

// The arguments of one call. Only read during the call, so a caller may keep and change them.
struct CallArguments {
  std::span<const Memory* const> tensors;  // in the order of Signature::tensors
  std::span<const Scalar> params = {};     // of Signature::params, in their dtypes
  std::span<const int64_t> dims = {};      // of CallPlan::free_dims, usually none
};

// Upper bounds of dims, by name.
using Limits = std::map<std::string, int64_t>;

class CallPlan {
 public:
  static constexpr uint64_t kWorkspaceAlignment = 256;
  using GridLimits = std::array<int64_t, 3>;  // blocks on each axis; in all i32 holds them
  static constexpr GridLimits kGpuGrid = {0x7fffffff, 0xffff, 0xffff};  // of every GPU
  static constexpr GridLimits kAnyGrid = {0x7fffffff, 0x7fffffff, 0x7fffffff};

  // What a call works out. Grows with the first calls of its owner and is then reused: any plan
  // may use any frame, one call at a time.
  struct Frame {
    std::vector<Scalar> values;      // top-level scalars that the host needs
    std::vector<Memory> workspaces;  // shapes and strides; data once the memory is known
    std::vector<Scalar> operands;    // of the scalar being computed
  };
  // A thread makes one call at a time, so one frame serves all its kernels.
  static Frame& thread_frame();

  // `launches`: the slots of each. InternalError if they are not those of the signature's kernel.
  CallPlan(Signature signature, std::span<const std::vector<Slot>> launches,
           const GridLimits& grid_limits = kGpuGrid);

  const Signature& signature() const { return signature_; }
  // The dims that no tensor has as an extent; a call must give them.
  const std::vector<std::string>& free_dims() const { return free_dims_; }

  // Checks the arguments as runtime/launch.h's bind does, but for overlap, and fills the frame.
  // UserError naming the kernel, the argument, what was expected and what came.
  void enter(const CallArguments& arguments, Frame& frame) const {
    if (!accepts(arguments, frame)) [[unlikely]]
      refuse(arguments);
  }
  // Of an entered call.
  std::array<int64_t, 3> grid(size_t launch, const Frame& frame) const;
  uint64_t workspace_bytes(const Frame& frame) const;  // 0: it needs none
  // Of any call whose dims are within the limits. UserError naming a dim that has no limit and
  // matters, and what is no dim.
  uint64_t workspace_bytes(const Limits& limits) const;
  // UserError unless it is `bytes` long and aligned, or without memory; whose memory it is the
  // device knows.
  void check_workspace(const Workspace& workspace, uint64_t bytes) const {
    const bool aligned = reinterpret_cast<uintptr_t>(workspace.data) % kWorkspaceAlignment == 0;
    const bool good = workspace.data ? aligned && workspace.bytes >= bytes : !workspace.bytes;
    if (!good) [[unlikely]]
      refuse_workspace(workspace, bytes);
  }
  // Of a device that has no streams; UserError if the stream is not null.
  void check_no_stream(Stream stream, std::string_view device) const;
  void place_workspaces(void* memory, Frame& frame) const;
  // A launch's parameters, in words of 8 bytes: first its maps (codegen/abi.h), which the caller
  // makes, then what fill_slots puts behind them.
  size_t parameter_words(size_t launch) const {
    return kMapWords * launches_[launch].maps.size() + launches_[launch].slot_count;
  }
  void fill_slots(size_t launch, const CallArguments& arguments, const Frame& frame,
                  uint64_t* parameters) const;
  static constexpr size_t kMapWords = kTensorMapBytes / sizeof(uint64_t);
  struct MapSource {
    TensorMap map;
    int tensor;  // for tensor_of()
    std::string name;
    DType dtype;
    int rank;
    bool operator==(const MapSource&) const = default;
  };
  const std::vector<MapSource>& maps(size_t launch) const { return launches_[launch].maps; }
  const Memory& tensor_of(int tensor, const CallArguments& arguments, const Frame& frame) const {
    const auto i = static_cast<size_t>(tensor);
    const size_t tensors = arguments.tensors.size();
    return i < tensors ? *arguments.tensors[i] : frame.workspaces[i - tensors];
  }

  // Of an entered call with its workspaces placed.
  const Memory& workspace_named(std::string_view name, const Frame& frame) const;

  // Arguments by position from bindings by name. UserError naming what is missing.
  struct Positional {
    std::vector<const Memory*> tensors;
    std::vector<Scalar> params;
    std::vector<int64_t> dims;
    CallArguments view() const { return {tensors, params, dims}; }
  };
  Positional positional(const Bindings& bindings) const;
  // And the other way. UserError if there are too many or too few.
  Arguments by_name(const CallArguments& arguments) const;

 private:
  static constexpr int kNone = -1;
  struct Axis {
    int value;              // the extent: an index into Frame::values,
    bool decides = false;   // which this axis gives its value,
    bool computed = false;  // or which is known only when all dims are
  };
  struct TensorPlan {
    DType dtype;
    std::vector<Axis> axes;
    bool written = false;
  };
  struct ComputedAxis {  // of which tensor; its extent is to be values[value]
    size_t tensor, axis, value;
  };
  struct Step {  // values[value] = op(values[operands]…)
    OpId op;
    int value;
    std::vector<int> operands;
    // Arithmetic of sizes: `code` is one of six ops, on values[left] and values[right], both i32.
    bool extent = false;
    OpCode code = OpCode::Add;
    int left = kNone, right = kNone;
  };
  struct Source {  // of slots; tensors from tensors_.size() on are workspaces
    Slot::Kind kind;
    int index;
    int axis;
    int strides = 0;  // so many, from `axis` on
  };
  struct LaunchPlan {
    std::array<int, 3> grid;  // values, or kNone for 1
    std::vector<MapSource> maps;
    std::vector<Source> slots;  // the others
    size_t slot_count = 0;      // that these fill
  };
  class Maker;

  bool accepts(const CallArguments& arguments, Frame& frame) const;
  bool accepts_tensors(const CallArguments& arguments, Scalar* values) const;
  static bool accepts_layout(const TensorPlan& plan, const Memory& memory, uint64_t extents,
                             uint64_t distances);
  bool accepts_grid(const std::array<int64_t, 3>& blocks) const;
  bool shape_workspaces(Frame& frame) const;
  static uint64_t aligned(uint64_t bytes) {
    return (bytes + kWorkspaceAlignment - 1) & ~(kWorkspaceAlignment - 1);
  }
  [[noreturn]] void refuse(const CallArguments& arguments) const;
  [[noreturn]] void refuse_workspace(const Workspace& workspace, uint64_t bytes) const;

  Signature signature_;
  GridLimits grid_limits_;
  std::vector<std::string> free_dims_;
  std::vector<TensorPlan> tensors_, workspaces_;
  std::vector<ComputedAxis> computed_;
  std::vector<std::string> workspace_names_;
  std::vector<OpId> workspace_ops_;
  std::vector<Scalar> initial_;  // of Frame::values: constants, and dtypes of all
  std::vector<Step> steps_;
  std::vector<int> free_dim_values_, param_values_;  // kNone: the host does not need it
  std::vector<LaunchPlan> launches_;
};

}  // namespace kiln
