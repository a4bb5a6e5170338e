// Emits one launch of a lowered kernel as an LLVM function.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "codegen/host_builder_impl.h"
#include "ir/ranges.h"

namespace kiln::host {

// One axis of a tensor, tile or view.
struct Axis {
  Val stride;     // in elements of the base
  Val start;      // of the view, in the base
  Val low, high;  // what every view of the chain and the base hold, in the base's coordinates
  Val extent;     // of the view; a constant unless `size` is kDynamic
  int64_t size;
  // Indices of the view in [sure_begin, sure_end) are inside whatever happens at run time.
  int64_t sure_begin, sure_end;

  bool surely_inside() const { return size != kDynamic && sure_begin <= 0 && sure_end >= size; }
};

// Storage ready to be addressed: a tensor, a tile, or a view of one.
struct Place {
  DType dtype;
  bool as_bits = false;  // holds the dtype's own bits, as tensors do; else values
  Val pointer = nullptr;
  llvm::MDNode* alias_tag = nullptr;  // tiles do not overlap
  std::vector<Axis> axes;
  std::vector<int64_t> pitches;  // of a tile: its strides

  bool surely_inside() const {
    for (const Axis& axis : axes)
      if (!axis.surely_inside()) return false;
    return true;
  }
};

// A scalar inside a body that runs for several lanes at once: one value for all lanes, a vector,
// or, if `linear` (i32 only), lane 0's value of value, value + 1, ….
struct Element {
  Val value = nullptr;
  bool linear = false;
  bool uniform() const { return !linear && !value->getType()->isVectorTy(); }
};

// A queue between roles, in the block's scratch memory. Its counters only grow; a use's slot is its
// number modulo the slots.
struct Channel {
  const Op* op = nullptr;
  uint64_t counters = 0, messages = 0, ring = 0;  // in scratch memory
  int64_t words = 0;                              // of a message
  Place slots;  // a tile of one axis more; its pointer means nothing
};

// A slot that a role has.
struct SlotUse {
  const Channel* channel = nullptr;
  Val place = nullptr;  // in the ring
};

struct Index {
  Element at;
  Interval range;  // what the index may be
};

class Emitter {
 public:
  Emitter(const Kernel& kernel, const Target& target, llvm::Module& module);
  HostLaunch emit(const Op& launch, const std::string& symbol);

 private:
  friend class ReduceEmitter;

  // host_structure.cpp
  void emit_interface(const Op& launch, const HostLaunch& made);
  void emit_region(RegionId region);
  void emit_op(const Op& op);
  void emit_for(const Op& op);
  void emit_if(const Op& op);
  void emit_store(const Op& op, int lanes, int active);
  void emit_atomic(const Op& op, int lanes, int active);  // host_atomic.cpp
  void emit_watch(const Op& op);                          // host_watch.cpp
  Val scalar(Value value);  // of a scalar that is the same for all lanes
  Element element(Value value);
  void set(Value value, Element element) { elements_[value.id] = element; }

  // host_memory.cpp: storage.
  Place place(Value storage);
  Place tensor_place(const Op& tensor);
  Place slice_place(const Op& slice);
  Place every_place(const Op& every);
  Place reshaped_place(Place tile, const Type& type);
  Place new_tile(DType dtype, const Shape& shape);
  Place new_image(DType dtype, const Shape& shape);  // row by row, as bits
  llvm::MDNode* new_alias_tag();
  uint64_t take_scratch(uint64_t bytes);  // its offset, aligned to 64
  Val scratch_at(uint64_t offset);
  std::vector<Index> indices(const Op& op, size_t first);
  Val address(const Place& place, std::span<const Val> index);
  // `lanes` neighbours at an address, as values; only those of the mask (null: all), else
  // `otherwise`.
  Val read(const Place& place, Val pointer, int lanes, Val mask, Val otherwise);
  void write(const Place& place, Val pointer, Val value, int lanes, Val mask);
  // One element a lane at any indices; 0 outside, or nothing written. The first `active` of
  // `lanes`.
  Val load(const Place& place, std::span<const Index> index, int lanes, int active);
  void store(const Place& place, std::span<const Index> index, Val value, int lanes, int active);
  Val vector(const Element& element, int lanes);
  Place inside_copy(const Place& place);  // itself, or a temporary tile if it may stick out

  // host_access.cpp
  struct Access {
    enum class Kind { Uniform, Row, Scattered } kind;
    Val pointer;  // or a vector of them
    Val mask;     // null: all
  };
  Access access(const Place& place, std::span<const Index> index, int lanes, int active);

  // host_copy.cpp
  // Indices of an axis that are inside, and whether that is known to be all of them.
  struct Span {
    Val begin, end;
    bool all;
  };
  struct Transfer;  // one copy or fill on its way
  Span inside_span(const Axis& axis);
  Val units_inside(const Place& place);  // axes of extent 1; null: surely
  void emit_copy(const Place& source, const Place& destination, double pad);
  void emit_fill(const Place& destination, Val value, DType dtype);
  void transfer(const Transfer& transfer);
  void transfer_rows(const Transfer& transfer, size_t level, std::vector<Val> from,
                     std::vector<Val> to, Val source_inside);
  void transfer_row(const Transfer& transfer, std::span<const Val> from, std::span<const Val> to,
                    Val source_inside);
  // body(k, mask) over [begin, end) in steps of `lanes`; the last step's mask leaves out the rest.
  void vector_loop(Val begin, Val end, int lanes, const std::function<void(Val, Val)>& body);

  // host_gemm.cpp; `clear`: c starts from 0 (i1), null: it does not
  void emit_gemm(const Op& op, Val clear);

  // host_roles.cpp
  void start_function(const std::string& symbol, bool role);
  void emit_role(const Op& launch, const Op& roles, size_t number, HostLaunch& made);
  void keep(const Op& op);
  void replay(const Op& op);
  void emit_loop(const Op& op);
  void emit_next_tile(const Op& op);

  // host_channels.cpp
  enum class Counter : uint64_t { Pushed, Popped, Released };
  void emit_channel(const Op& op);
  void emit_channel_op(const Op& op);
  void emit_push_end(const Op& op);
  void emit_message(const Op& op);
  Val counter(const Channel& channel, Counter which);  // its address
  Val count(const Channel& channel, Counter which);
  void increment(const Channel& channel, Counter which);
  void await(const Op& op, const Channel& channel, Counter which, Val least, const char* why);
  void use_slot(const Op& op, const Channel& channel, Val number);
  Val message_word(const SlotUse& slot, int64_t word);  // its address
  // host_reduce.cpp
  void emit_reduce(const Op& op);
  // host_parallel.cpp
  void emit_parallel(const Op& op);
  void emit_lanes(RegionId region, int lanes, int active);
  void emit_pure(const Op& op, int lanes);
  Element shifted_index(const Op& op);

  const Kernel& kernel_;
  Builder b;
  Ranges ranges_;
  std::unordered_map<uint32_t, Element> elements_;  // scalars, by value id
  std::unordered_map<uint32_t, Place> places_;      // tensors, tiles and views, by value id
  std::unordered_set<uint32_t> reshaped_;           // tiles, by value id
  std::unordered_map<uint32_t, Channel> channels_;  // by value id
  std::unordered_map<uint32_t, SlotUse> uses_;      // by value id of push_begin, pop and held
  // What roles know from before them, other than by computing it again: where it is in scratch.
  std::unordered_map<uint32_t, uint64_t> kept_;  // by value id
  llvm::Function* function_ = nullptr;
  Val blocks_ = nullptr;  // of the launch
  std::vector<HostWait> waits_;
  Val scratch_ = nullptr;
  uint64_t scratch_bytes_ = 0;
  int tiles_ = 0;  // number made, for alias tags
};

}  // namespace kiln::host
