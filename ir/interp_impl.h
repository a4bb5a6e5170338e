// The interpreter's state, shared by its files.
#pragma once

#include <memory>

#include "ir/evaluate_impl.h"
#include "ir/interp.h"
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

  void decode(RegionId region);
  void bind(const Op& tensor, const Bindings& bindings);

  void run_region(RegionId region);
  void run_inst(const Inst& inst);
  void run_scalar(const Inst& inst);
  void run_launch(const Op& op);
  void run_for(const Op& op);
  void run_selected(const Op& op);
  void run_parallel(const Op& op);
  void run_alloc(const Op& op);
  void run_slice(const Op& op);
  void run_load(const Op& op);
  void run_store(const Op& op);
  std::vector<int64_t> selected_indices(const Op& op) const;
  void set_i32(Value value, int64_t number) { scalars_[value.id] = Scalar::of_int(I32, number); }
  const int64_t* index_of(const Op& op, size_t first);

  const Kernel& kernel_;
  const InterpOptions options_;
  TopLevel top_;
  std::vector<Scalar> scalars_;                     // by value id
  std::vector<View> views_;                         // by value id
  std::vector<std::unique_ptr<Storage>> storages_;  // by value id
  std::vector<std::vector<std::byte>> workspaces_;
  std::vector<std::vector<Inst>> code_;  // by region id
  std::unordered_map<const Op*, ParallelPlan> plans_;
  RaceDetector races_;
  Shape index_;  // scratch
};

// Ops on whole tiles: what they read is gathered, the results are scattered.
void run_copy(const Interpreter& at, const Op& op);
void run_fill(const Interpreter& at, const Op& op);
void run_gemm(const Interpreter& at, const Op& op);
void run_reduce(const Interpreter& at, const Op& op);
void run_softmax_step(const Interpreter& at, const Op& op);
void run_scale_rows(const Interpreter& at, const Op& op);
void run_softmax_finish(const Interpreter& at, const Op& op);

}  // namespace kiln::interp
