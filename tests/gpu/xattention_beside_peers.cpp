// XAttention by phases inside a Python process: what xattention_beside_peers.py calls.
#include <deque>
#include <functional>
#include <stdexcept>

#include "kernels/block_sparse_attention/block_sparse_attention.h"
#include "kernels/softmax_block_sum/softmax_block_sum.h"
#include "kernels/xattention/prefill.h"
#include "runtime/cuda_device.h"
#include "tests/gpu/beside_peers.h"

namespace {

using namespace kiln;
using beside::Given, beside::memory_of, beside::report;

enum Phase : int64_t { kScores, kBlockSums, kEstimate, kChoice, kSparse, kDense, kPrefill };

struct Settings {  // as in xattention_beside_peers.py
  int64_t phase, head_dim, stride, block;
};
// `number`: the scale of block sums, else the threshold.
using Call = std::function<void(const Given* tensors, float number, void* stream)>;

PrefillConfig config_of(const Settings& s) {
  PrefillConfig config;
  config.head_dim = s.head_dim;
  config.stride = s.stride;
  config.block = s.block;
  config.dense_below = 0;
  return config;
}

ChoiceArgs choice_of(const Given* tensors, float threshold) {
  ChoiceArgs args;
  args.mask = memory_of(tensors[0]);
  args.counts = memory_of(tensors[1]);
  args.indices = memory_of(tensors[2]);
  args.threshold = threshold;
  return args;
}

Call attention_of(const AttentionConfig& config, bool lists) {
  return [call = block_sparse_attention(cuda_device(), config), lists](const Given* t, float,
                                                                       void* stream) {
    AttentionArgs args{
        .q = memory_of(t[0]), .k = memory_of(t[1]), .v = memory_of(t[2]), .o = memory_of(t[3])};
    if (lists) {
      args.counts = memory_of(t[4]);
      args.indices = memory_of(t[5]);
    }
    call(args, stream);
  };
}

Call compiled(const Settings& s) {
  Device& device = cuda_device();
  const PrefillConfig config = validated(config_of(s), device.target());
  const EstimateConfig estimate = validated(config.estimate());
  switch (s.phase) {
    case kScores: {
      AntidiagConfig cells = estimate.cells();
      cells.out = F16;
      return [call = antidiag_scores(device, cells)](const Given* t, float, void* stream) {
        AntidiagArgs args;
        args.q = memory_of(t[0]);
        args.k = memory_of(t[1]);
        args.scores = memory_of(t[2]);
        call(args, stream);
      };
    }
    case kBlockSums:
      return [call = softmax_block_sum(device, {.block = s.block / s.stride})](
                 const Given* t, float scale, void* stream) {
        call({memory_of(t[0]), memory_of(t[1]), memory_of(t[2]), memory_of(t[3]), memory_of(t[4]),
              scale},
             stream);
      };
    case kEstimate:
      return
          [call = xattn_estimate(device, estimate)](const Given* t, float threshold, void* stream) {
            EstimateArgs args;
            args.q = memory_of(t[0]);
            args.k = memory_of(t[1]);
            args.sums = memory_of(t[2]);
            static_cast<ChoiceArgs&>(args) = choice_of(t + 3, threshold);
            call(args, stream);
          };
    case kChoice:
      return [call = select_blocks(device, estimate.select)](const Given* t, float threshold,
                                                             void* stream) {
        SelectArgs args{choice_of(t + 3, threshold), memory_of(t[0]), memory_of(t[1]),
                        memory_of(t[2])};
        call(args, stream);
      };
    case kSparse: return attention_of(config.attention(), true);
    case kDense: {
      AttentionConfig dense = config.attention();
      dense.form = BlockForm::Dense;
      return attention_of(dense, false);
    }
    case kPrefill:
      return [call = xattention_prefill(device, config)](const Given* t, float threshold,
                                                         void* stream) {
        PrefillArgs args{
            .q = memory_of(t[0]), .k = memory_of(t[1]), .v = memory_of(t[2]), .o = memory_of(t[3])};
        args.threshold = threshold;
        call(args, stream);
      };
    default: throw std::runtime_error("no such phase");
  }
}

std::deque<Call>& handles() {
  static std::deque<Call> all;
  return all;
}

}  // namespace

// Compiles; the handle's number. Null, or what is wrong; so too below.
extern "C" [[gnu::visibility("default")]] const char* kiln_xattention_compile(
    const Settings* settings, int64_t* handle) {
  return report([&] {
    handles().push_back(compiled(*settings));
    *handle = static_cast<int64_t>(handles().size()) - 1;
  });
}

extern "C" [[gnu::visibility("default")]] const char* kiln_xattention_call(int64_t handle,
                                                                           const Given* tensors,
                                                                           float number,
                                                                           void* stream) {
  return report([&] { handles()[static_cast<size_t>(handle)](tensors, number, stream); });
}
