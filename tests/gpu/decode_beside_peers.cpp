// Sparse decode inside a Python process: what decode_beside_peers.py calls, through libkiln.so.
#include <deque>

#include "kernels/sparse_decode/sparse_decode.h"
#include "runtime/cuda_device.h"
#include "tests/gpu/beside_peers.h"

namespace {

using namespace kiln;
using beside::Given, beside::memory_of, beside::report;

struct Settings {  // as in decode_beside_peers.py
  int64_t bf16, fp8_cache, head_dim, group, block, page, form, split, stages, threads;
};

DecodeConfig config_of(const Settings& s) {
  DecodeConfig config;
  config.dtype = s.bf16 ? BF16 : F16;
  config.fp8_cache = s.fp8_cache;
  config.head_dim = s.head_dim;
  config.group = s.group;
  config.block = s.block;
  config.page = s.page;
  config.form = static_cast<DecodeForm>(s.form);
  config.split = s.split;
  config.stages = s.stages;
  config.threads = s.threads;
  return config;
}

std::deque<SparseDecode>& handles() {
  static std::deque<SparseDecode> all;
  return all;
}

}  // namespace

// Compiles; the handle's number. Null, or what is wrong; so too below.
extern "C" [[gnu::visibility("default")]] const char* kiln_decode_compile(const Settings* settings,
                                                                          int64_t* handle) {
  return report([&] {
    handles().push_back(sparse_decode(cuda_device(), config_of(*settings)));
    *handle = static_cast<int64_t>(handles().size()) - 1;
  });
}

// `tensors`: q, k, v, o, lengths, chosen, table, k_scale, v_scale. `splits`: 0: chosen.
extern "C" [[gnu::visibility("default")]] const char* kiln_decode_call(int64_t handle,
                                                                       const Given* tensors,
                                                                       int64_t splits,
                                                                       void* stream) {
  return report([&] {
    DecodeArgs args;
    args.q = memory_of(tensors[0]);
    args.k = memory_of(tensors[1]);
    args.v = memory_of(tensors[2]);
    args.o = memory_of(tensors[3]);
    args.lengths = memory_of(tensors[4]);
    std::optional<Memory>* const further[] = {&args.chosen, &args.table, &args.k_scale,
                                              &args.v_scale};
    for (size_t i = 0; i < std::size(further); ++i)
      if (tensors[5 + i].data) *further[i] = memory_of(tensors[5 + i]);
    if (splits) args.splits = splits;
    handles()[static_cast<size_t>(handle)](args, stream);
  });
}
