// Emits one launch of a lowered kernel as an LLVM function for NVPTX.
//
// One thread's view: a scalar is one value; a fragment is the list of the thread's registers, SSA
// values that every op replaces (control flow joins them with phis: no memory, no allocas); shared
// tiles and tensors are addresses.
#pragma once

#include <llvm/IR/DIBuilder.h>

#include <memory>
#include <unordered_map>

#include "codegen/nvptx.h"
#include "codegen/nvptx_builder_impl.h"
#include "codegen/roles_impl.h"
#include "ir/layout/formula.h"
#include "ir/layout/layout.h"
#include "ir/ranges.h"

namespace kiln::nvptx {

// One axis of a tensor, shared tile or view. Positions and extents are i32, strides i64.
struct Axis {
  Val stride = nullptr;  // of a tensor, in elements; null for a shared tile
  Val start = nullptr;   // of the view, in the base
  // What the base and the views before this one all hold, in the base; of a base, all of it.
  Val low = nullptr, high = nullptr;
  Val extent = nullptr;  // of the view; a constant unless `size` is kDynamic
  int64_t size = 0;
  // Indices of the view in [sure_begin, sure_end) are inside whatever happens at run time.
  int64_t sure_begin = 0, sure_end = 0;

  bool surely_inside() const { return size != kDynamic && sure_begin <= 0 && sure_end >= size; }
};

// Memory ready to be addressed: a tensor, a shared tile, or a view of one. Not a fragment.
struct Place {
  DType dtype = F32;
  Space space = Space::Global;
  Val pointer = nullptr;  // of the base; address space 1 or 3
  std::vector<Axis> axes;
  // Of a tensor: its address and all its strides are multiples of 16 bytes (i1).
  Val aligned = nullptr;
  std::shared_ptr<const Layout> layout;  // of a shared tile's base: coordinate → offset in elements

  bool surely_inside() const {
    for (const Axis& axis : axes)
      if (!axis.surely_inside()) return false;
    return true;
  }
};

struct Fragment {
  DType dtype = F32;
  std::shared_ptr<const Layout> layout;
  Values registers;
  // Operand A of a gemm_async is kept as the machine's registers, i32 of per_word elements each: a
  // loop carries them without taking them apart. Emitter::emit_op unpacks them for other ops.
  bool packed = false;
};

// What runs a region: the block's threads, or those of one role (ir/ops.def, Roles).
struct Agent {
  int64_t first_warp = 0;  // of the block
  int64_t warps = 0;
  bool one_thread = false;  // all others of the role are idle
  int barrier = 0;          // number of its named barrier
};

// Which launches of its kernel there are around one.
struct Neighbours {
  bool before = false, after = false;
};

class Emitter {
 public:
  Emitter(const Kernel& kernel, const GpuTarget& target, llvm::Module& module);
  GpuLaunch emit(const Op& launch, const std::string& entry, const Neighbours& neighbours);

  Builder b;
  const Kernel& kernel() const { return kernel_; }
  const Agent& agent() const { return agent_; }
  int64_t warps() const { return agent_.warps; }
  int64_t launch_registers() const { return registers_.registers; }  // of a thread, at most
  Val lane() const { return lane_; }
  Val warp() const { return warp_; }  // of the agent

  // nvptx_structure.cpp
  void emit_region(RegionId region);
  void emit_op(const Op& op);
  Val scalar(Value value);
  void set(Value value, Val is) { scalars_[value.id] = is; }
  bool is_fragment(Value storage) const { return kernel_.type(storage).space == Space::Fragment; }
  Fragment& fragment(Value tile);  // the current registers; InternalError for a slice
  Fragment new_fragment(DType dtype, std::shared_ptr<const Layout> layout);  // of zeros
  // Of the agent: all meet; is this its first thread, or the first of its warp? Null: surely.
  void barrier();
  Val leader();
  Val first_lane();

  // The late IR. nvptx_roles.cpp
  void emit_roles(const Op& op);
  void emit_loop(const Op& op);
  void emit_exit_if(const Op& op);
  void emit_next_tile(const Op& op);
  // nvptx_channels.cpp: the one file that makes mbarriers, and that knows slot indices and phases.
  void emit_channel(const Op& op);       // notes its place
  void start_channels(const Op& roles);  // initialises all barriers; before the roles part
  void emit_channel_op(const Op& op);    // push_begin, push_end, pop, held, message, release
  // Of a slot being pushed: its barrier (ptr addrspace(3)), and that asynchronous copies into it
  // will count so many bytes there. By the thread that begins them.
  Val full_barrier(Value slot);
  void expect_bytes(Value slot, int64_t bytes);
  // nvptx_bulk.cpp: copies by tensor maps (TMA).
  void emit_copy_async(const Op& op);
  void emit_store_async(const Op& op);
  void emit_await_stores(const Op& op);
  // nvptx_wgmma.cpp
  void emit_gemm_async(const Op& op);
  void emit_await(const Op& op);
  // nvptx_softmax.cpp
  void emit_softmax_step(const Op& op);
  void emit_scale_rows(const Op& op);
  // nvptx_packed.cpp
  bool is_packed(Value tile, const Layout& layout) const;  // will Fragment::packed hold?
  // The packed fragments that an op, or one in its regions, takes for elements; and running what
  // takes them so.
  std::vector<Value> packed_operands(const Op& op);
  void on_elements(std::span<const Value> tiles, const std::function<void()>& run);

  // nvptx_threads.cpp: this thread's part of a layout.
  Val evaluate(const Formula& formula, std::span<const Val> sources);
  // The coordinate of the element in a register of this thread.
  Values coordinate(const Layout& layout, int64_t reg);
  Values coordinate(const Layout& layout, Val reg);
  // Is it an element of the tile, or padding? Null if no thread has padding there.
  Val in_tile(const Layout& layout, std::span<const Val> coordinate);
  Val in_tile(const Layout& layout, int64_t reg);

  // nvptx_memory.cpp
  Place place(Value storage);
  Place tensor_place(const Op& tensor);
  // Is an index of a view inside the view's chain and base? Null if surely. `ranges`: what each
  // index may be, if not just 0 … size - 1 of its axis.
  Val inside(const Place& place, std::span<const Val> index, std::span<const Interval> ranges = {});
  Val address(const Place& place, std::span<const Val> index);  // to an element of a view
  Val zeros(unsigned space);  // the address of 16 bytes of zeros: what is outside is read there
  // One element, or `width` along the last axis as a vector (aligned to all its bytes; the pad is a
  // splat). Outside `condition` (null: inside): `otherwise` (null: zeros), or nothing is written.
  Val read(const Place& place, std::span<const Val> index, Val condition, int width = 1,
           Val otherwise = nullptr);
  void write(const Place& place, std::span<const Val> index, Val value, Val condition,
             int width = 1);
  void emit_load(const Op& op);  // outside and inside of parallel
  void emit_store(const Op& op);
  void emit_atomic(const Op& op);  // nvptx_atomic.cpp

  // One op each, in files of their names.
  void emit_copy(const Op& op);      // nvptx_copy.cpp: global, shared and fragments, any two
  void emit_fill(const Op& op);      // nvptx_copy.cpp
  void emit_parallel(const Op& op);  // nvptx_parallel.cpp
  void emit_gemm(const Op& op);      // nvptx_gemm.cpp, nvptx_gemm_fma.cpp
  void emit_reduce(const Op& op);    // nvptx_reduce.cpp
  void emit_convert(const Op& op);   // nvptx_relayout.cpp

  // Inside a parallel: the point that is being run.
  struct Point {
    Val valid = nullptr;  // the point is one of the loop's; null: surely
    Val first = nullptr;  // of all threads that run it, this is the one that writes memory
    int64_t reg = 0;      // of the loop's layout
    // By load or store of a fragment: local_registers (ir/layout/locality.h).
    std::unordered_map<const Op*, std::vector<int>> registers;
    bool defers = false;  // stores to memory wait until those of several points are known
    std::vector<std::function<void()>> stores;
  };

 private:
  void emit_one(const Op& op);
  void overlap_launches(const Neighbours& neighbours);
  void emit_interface(const Op& launch, const std::vector<Slot>& slots, llvm::Function& function,
                      bool early);
  llvm::Argument* argument_of(const std::vector<Slot>& slots, const Slot& slot,
                              llvm::Function& function);
  void emit_for(const Op& op);
  void emit_if(const Op& op);
  void emit_scope(RegionId region);
  void set_place(Val thread);
  void read_place_anew();
  bool multiplies(const Op& op) const;
  void emit_branch(RegionId region);
  void emit_alloc(const Op& op);
  std::vector<Value> written_outside(const Op& op);  // fragments from outside that it writes
  Values registers_of(std::span<const Value> tiles);
  void set_registers(std::span<const Value> tiles, std::span<const Val> registers);
  // The user's lines, for .loc.
  void start_locations(const Op& launch, llvm::Function& function);
  llvm::DIFile* location_file(const std::string& path);
  void set_location(const Op& op);
  // nvptx_roles.cpp
  void start_launch(const Op& launch, llvm::Function& function);
  void emit_role(const Role& role, Val warp);
  // nvptx_channels.cpp
  struct SlotState {
    const Op* channel = nullptr;
    Val index = nullptr;  // in the ring
    RegionId region;      // that it was taken in
    int64_t bytes = 0;    // of asynchronous copies that push_end announces
    Values message;       // words
  };
  void start_channel_ends();  // of a role
  Val control(const Op& channel, Val index, int64_t bytes_each, int64_t offset);
  Val full(const Op& channel, Val index);
  Val empty(const Op& channel, Val index);
  void wait(Val barrier, Val phase);
  Place slot_place(const Op& channel, Val index);
  void take_slot(const Op& op, Val index);
  Val message_address(const Op& channel, Val index, int64_t first_word);
  Values read_message(const Op& channel, Val index);
  void write_message(const Op& channel, Val index, std::span<const Value> values);
  void advance(Values& state, size_t index, size_t phase, int64_t slots);
  bool counts_held(const Op& channel);  // does the role ask for the one held longest?
  void emit_push_end(const Op& op);
  void emit_pop(const Op& op);
  void emit_release(const Op& op);
  void emit_message(const Op& op);
  void finish_stores();  // nvptx_bulk.cpp: at an agent's end

  Val load_register(const Op& op);  // nvptx_parallel.cpp
  void store_register(const Op& op, Val value);

  const Kernel& kernel_;
  Ranges ranges_;
  Agent agent_;
  Val lane_ = nullptr, warp_ = nullptr;
  bool busy_ = false;     // in a loop full of fragments
  Val shared_ = nullptr;  // the block's shared memory
  Point* point_ = nullptr;
  std::unique_ptr<llvm::DIBuilder> debug_;
  llvm::DISubprogram* scope_ = nullptr;
  std::unordered_map<uint32_t, Val> scalars_;         // by value id
  std::unordered_map<uint32_t, Fragment> fragments_;  // by value id of the alloc
  std::unordered_map<uint32_t, Place> places_;        // tensors, shared tiles and views
  // The late IR.
  struct Exits {  // of the loop that is being emitted
    llvm::BasicBlock* after = nullptr;
    std::vector<Value> tiles;  // that it carries
    std::vector<std::pair<llvm::BasicBlock*, Values>> values;
  };
  LaunchRegisters registers_;
  size_t grid_axes_ = 0;    // of the launch
  RegionId body_, region_;  // of the agent; that is being emitted
  // The state of a role's end of a channel is a fragment under its id, so that loops carry it.
  std::vector<const Op*> channels_;
  Exits* exits_ = nullptr;
  std::unordered_map<uint32_t, SlotState> slots_;  // by value id of push_begin, pop, held
  std::unordered_map<const Op*, Val> maps_;        // tensor maps of asynchronous copies
  std::vector<Value> gemms_;                       // tokens not awaited, in order of issue
  // By value id of alpha: is some row's, of this warp, not 1? Of alpha as it was in these
  // registers.
  struct Rescale {
    Val some = nullptr;
    Values alpha;
  };
  std::unordered_map<uint32_t, Rescale> rescales_;
  std::unordered_map<std::string, std::shared_ptr<const Layout>> layouts_;  // by text
  std::shared_ptr<const Layout> layout(const std::string& text);
};

// Where a thread's registers lie in a shared tile: one address is computed, the others differ from
// it by constants where offset_steps (ir/layout/access.h) allows, else each takes the formula.
// nvptx_shared.cpp
class SharedAddresses {
 public:
  // `walk` is by reg, lane and warp over the view `place`; register r stands for an element, or,
  // if v > 1, for v consecutive ones along `axis`, which `walk` then counts in vectors.
  SharedAddresses(Emitter& emitter, const Place& place, const Layout& walk, int axis = 0,
                  int64_t v = 1);
  Val operator()(int64_t reg);  // ptr addrspace(3) to the (first) element

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace kiln::nvptx
