// The arguments of an attention call, copied to a device and back.
#pragma once

#include <list>
#include <utility>

#include "kernels/block_sparse_attention/block_sparse_attention.h"
#include "tools/kiln/device_array.h"

namespace kiln::cli {

class DeviceAttention {
 public:
  DeviceAttention(Device& device, const AttentionArgs& host) : device_(device), host_(host) {
    args_.scale = host.scale;
    args_.q = copy(host.q);
    args_.k = copy(host.k);
    args_.v = copy(host.v);
    args_.o = copy(host.o);
    if (host.mask) args_.mask = copy(*host.mask);
    if (host.counts) args_.counts = copy(*host.counts);
    if (host.indices) args_.indices = copy(*host.indices);
    if (host.lse) args_.lse = copy(*host.lse);
  }
  const AttentionArgs& args() const { return args_; }
  // Writes o and lse into the host memory that they were given with.
  void download_results() const {
    device_.synchronize();
    fetch(host_.o, args_.o);
    if (host_.lse) fetch(*host_.lse, *args_.lse);
  }

 private:
  Memory copy(const Memory& host) { return arrays_.emplace_back(device_, host).memory(); }
  void fetch(const Memory& host, const Memory& there) const {
    device_.download(host.data, there.data, bytes_of(host.dtype, host.shape));
  }

  Device& device_;
  AttentionArgs host_, args_;
  std::list<DeviceArray> arrays_;
};

}  // namespace kiln::cli
