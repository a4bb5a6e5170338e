// The interpreter's state, shared by its files.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <random>
#include <unordered_set>

#include "ir/coroutines.h"
#include "ir/evaluate_impl.h"
#include "ir/interp.h"
#include "ir/interp_async_impl.h"
#include "ir/interp_channels_impl.h"
#include "ir/interp_storage_impl.h"

namespace kiln::interp {

class Interpreter {
 public:
  Interpreter(const Kernel& kernel, const Bindings& bindings, const InterpOptions& options);
  void run();

  const Kernel& kernel() const { return kernel_; }
  const Scalar& scalar(Value value) const { return scalars_[value.id]; }
  int64_t integer(Value value) const { return scalars_[value.id].i; }
  const View& view(Value value) const { return views_[value.id]; }
  DType dtype(Value value) const { return kernel_.type(value).dtype; }
  // Does this softmax_step guess where it may?
  bool guesses() const;

 private:
  // An op with what its execution would look up each time.
  struct Inst {
    const Op* op;
    DType result;
    Comparison comparison;
    Scalar constant;
  };
  struct ParallelPlan {
    Shape extents;
    std::vector<Value> stored;  // bases
  };

  // What runs a region: the block, or one of its roles.
  struct AgentState {
    std::string name;
    size_t depth = 0;  // regions entered
  };
  struct Token {
    uint64_t number = 0;  // of the task
    bool awaited = false;
  };

  void decode(RegionId region);
  void bind(const Op& tensor, const Bindings& bindings);

  void run_region(RegionId region);
  void run_scope(RegionId region);  // of ops that may wait: not of a parallel
  void run_step(const Inst& inst);
  void run_inst(const Inst& inst);
  void run_scalar(const Inst& inst);
  void run_launch(const Op& op);
  void run_for(const Op& op);
  void run_selected(const Op& op);
  void run_parallel(const Op& op);
  void run_alloc(const Op& op);
  void run_slice(const Op& op);
  void run_every(const Op& op);
  void run_reshape(const Op& op);
  void check_element(const Op& op, const View& view, Effect effect) const;
  void run_load(const Op& op);
  void run_store(const Op& op);
  void run_atomic(const Op& op);
  void run_device_assert(const Op& op);
  void run_watch(const Op& op) const;
  // interp_roles.cpp
  size_t agent_number() const { return in_roles_ ? coroutines_.current() : 0; }
  AgentState& agent() { return agents_[agent_number()]; }
  void start_block();
  void end_agent();
  void wait(const Coroutines::Predicate& ready, const Coroutines::Describe& describe);
  void check_operands(const Op& op) const;
  void check_access(const Op& op, const View& view, Effect effect, bool accumulator = false) const;
  void run_roles(const Op& op);
  void run_loop(const Op& op);
  void run_next_tile(const Op& op);
  // interp_channels.cpp
  Channel& channel_at(const Op& op, std::optional<size_t> Channel::*end);
  Slot& slot_at(const Op& op, size_t operand) const;
  void run_channel(const Op& op);
  void run_push_begin(const Op& op);
  void run_push_end(const Op& op);
  void run_pop(const Op& op);
  void run_held(const Op& op);
  void run_message(const Op& op);
  void run_release(const Op& op);
  void require_open(const Op& op, const Storage& to) const;
  // interp_async.cpp
  void run_gemm_async(const Op& op);
  void run_await(const Op& op);
  void run_copy_async(const Op& op);
  void run_store_async(const Op& op);
  void run_await_stores(const Op& op);
  std::vector<int64_t> selected_indices(const Op& op) const;
  void set_i32(Value value, int64_t number) { scalars_[value.id] = Scalar::of_int(I32, number); }
  const int64_t* index_of(const Op& op, size_t first);

  const Kernel& kernel_;
  const InterpOptions options_;
  TopLevel top_;
  std::vector<Scalar> scalars_;                     // by value id
  std::vector<View> views_;                         // by value id
  std::vector<std::unique_ptr<Storage>> storages_;  // by value id
  std::unordered_set<uint32_t> reshaped_;           // tiles, by value id
  std::vector<std::vector<std::byte>> workspaces_;
  std::vector<std::vector<Inst>> code_;  // by region id
  std::unordered_map<const Op*, ParallelPlan> plans_;
  RaceDetector races_;
  Shape index_;  // scratch
  std::array<int64_t, 3> block_{};
  struct Failed {
    const Op* op = nullptr;
    std::array<int64_t, 3> block{};
  };
  Failed failed_;  // the first device_assert that did not hold
  // The late IR.
  mutable std::mt19937_64 random_;
  AsyncWork work_;
  Coroutines coroutines_;
  bool in_roles_ = false;
  int64_t blocks_ = 0;     // of the launch
  int64_t committed_ = 0;  // groups of copies, by commit_copies
  std::vector<AgentState> agents_;
  std::map<uint32_t, std::unique_ptr<Channel>> channels_;  // by value id
  std::unordered_map<uint32_t, Token> tokens_;             // by value id
};

// Ops on whole tiles: what they read is gathered, the results are scattered.
void run_copy(const Interpreter& at, const Op& op);
void run_fill(const Interpreter& at, const Op& op);
void run_gather(const Interpreter& at, const Op& op);   // interp_gather.cpp
void run_scatter(const Interpreter& at, const Op& op);  // interp_gather.cpp
void run_gemm(const Interpreter& at, const Op& op);
void run_reduce(const Interpreter& at, const Op& op);
void run_arg_reduce(const Interpreter& at, const Op& op);
void run_cumsum(const Interpreter& at, const Op& op);
void run_sort(const Interpreter& at, const Op& op);
void run_softmax_step(const Interpreter& at, const Op& op);
void run_scale_rows(const Interpreter& at, const Op& op);
void run_softmax_finish(const Interpreter& at, const Op& op);

}  // namespace kiln::interp
