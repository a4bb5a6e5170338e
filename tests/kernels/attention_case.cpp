#include "tests/kernels/attention_case.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "runtime/device.h"
#include "tests/support/on_device.h"

namespace kiln::test {

void fill(Array& array, double value) {
  for (int64_t i = 0; i < array.size(); ++i) array.set(i, value);
}

void fill_normal(Array& array, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < array.size(); ++i) array.set(i, normal(random));
}

uint64_t run_seed() {
  static const uint64_t seed = [] {
    const char* given = std::getenv("KILN_TEST_SEED");
    uint64_t value =
        given ? std::strtoull(given, nullptr, 10)
              : static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
    std::cout << "random tests: KILN_TEST_SEED=" << value << std::endl;
    return value;
  }();
  return seed;
}

std::vector<std::string_view> devices() {
  if (const char* given = std::getenv("KILN_TEST_DEVICE")) return {given};
  return {"host", "interpreter"};
}

Device& fast_device() {
  return device(devices().front());
}

namespace {

template <class Visit>
void for_each_tensor(AttentionArgs& args, Visit&& visit) {
  visit("q", args.q);
  visit("k", args.k);
  visit("v", args.v);
  visit("o", args.o);
  if (args.lse) visit("lse", *args.lse);
  if (args.mask) visit("mask", *args.mask);
  if (args.counts) visit("counts", *args.counts);
  if (args.indices) visit("indices", *args.indices);
}

}  // namespace

AttentionCase::AttentionCase(const AttentionConfig& wanted, const Sizes& s)
    : config(validated(wanted, fast_device().target())),
      sizes(s),
      q(config.dtype, {s.batch, s.heads, s.seq, config.head_dim}),
      k(config.dtype, {s.batch, s.heads_kv, s.seq_kv, config.head_dim}),
      v(config.dtype, {s.batch, s.heads_kv, s.seq_kv, config.dim_v()}),
      o(config.dtype, {s.batch, s.heads, s.seq, config.dim_v()}),
      lse(F32, {s.batch, s.heads, s.seq}),
      args{q.view(), k.view(), v.view(), o.view(), {}, {}, {}, {}, {}} {
  if (config.lse) args.lse = lse.view();
  Array full(Bool, {s.batch, s.heads, grid().rows(), grid().cols()});
  fill(full, 1);
  use(full);
}

void AttentionCase::use(const Array& bool_mask) {
  mask = bool_mask;
  if (config.form == BlockForm::Lists) {
    lists = to_lists(mask);
    args.counts = lists.counts.view();
    args.indices = lists.indices.view();
  } else if (config.form != BlockForm::Dense) {
    if (config.form == BlockForm::MaskI8) mask = Array(I8, mask.shape(), mask.values());
    args.mask = mask.view();
  }
}

void AttentionCase::randomize(uint64_t seed, double density) {
  std::mt19937_64 random(seed);
  for (Array* array : {&q, &k, &v}) fill_normal(*array, random);
  Array chosen(Bool, {sizes.batch, sizes.heads, grid().rows(), grid().cols()});
  std::bernoulli_distribution coin(density);
  for (int64_t i = 0; i < chosen.size(); ++i) chosen.set(i, coin(random));
  use(chosen);
}

void AttentionCase::run(Device& device) {
  fill(o, NAN);
  fill(lse, NAN);
  auto call = block_sparse_attention(device, config);
  if (kiln::testing::uses_host_memory(device)) return call(args);
  Bindings host;
  AttentionArgs there = args;
  for_each_tensor(there, [&](const char* name, Memory& memory) { host.tensors[name] = memory; });
  kiln::testing::OnDevice copies(device, host);
  for_each_tensor(there, [&](const char* name, Memory& memory) {
    memory = copies.bindings().tensors.at(name);
  });
  call(there);
  copies.fetch();
}

void AttentionCase::check(Device& device) {
  run(device);
  AttentionReference reference = attention_reference(config, args, all_rows(args));
  INFO(describe() << " on " << device.name());
  Comparison outputs =
      compare(to_doubles(args.o), reference.o, config.dim_v(), accuracy_rule(config.dtype));
  INFO("o: " << outputs.str());
  CHECK(outputs.ok());
  if (!config.lse) return;
  Comparison sums = compare(to_doubles(*args.lse), reference.lse, 1, lse_accuracy_rule());
  INFO("lse: " << sums.str());
  CHECK(sums.ok());
}

std::string AttentionCase::describe() const {
  const char* forms[] = {"mask", "mask_i8", "lists", "dense"};
  return fmt::format("{} {}{}{}{} B{} H{}/{} S{}/{} D{}/{} blocks {}x{} tiles {}x{}",
                     forms[static_cast<int>(config.form)], name(config.dtype),
                     config.causal ? " causal" : "", config.lse ? " lse" : "",
                     config.written_out ? " written_out" : "", sizes.batch, sizes.heads,
                     sizes.heads_kv, sizes.seq, sizes.seq_kv, config.head_dim, config.dim_v(),
                     config.block.q, config.block.k, config.block_m, config.block_n);
}

}  // namespace kiln::test
