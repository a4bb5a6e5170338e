// Calls of the library from a program outside, checked against the library's float64 references.
#include <kiln/kernels/kernels.h>
#include <kiln/version.h>

#include <cmath>
#include <iostream>
#include <random>

using namespace kiln;

static_assert(KILN_VERSION_MAJOR == 0 && KILN_VERSION_MINOR >= 1 && KILN_VERSION_PATCH >= 0);

static Array random_array(DType dtype, const Shape& shape) {
  static std::mt19937 random(std::random_device{}());
  Array array(dtype, shape);
  for (int64_t i = 0; i < array.size(); ++i)
    array.set(i, std::normal_distribution<double>()(random));
  return array;
}
static Array unwritten(DType dtype, const Shape& shape) {
  Array array(dtype, shape);
  for (int64_t i = 0; i < array.size(); ++i) array.set(i, NAN);
  return array;
}
static bool report(const char* what, const Comparison& result) {
  std::cout << what << ": " << result.str() << "\n";
  return result.ok();
}

static bool attention() {
  const Shape queries = {1, 4, 200, 64}, keys = {1, 2, 300, 64};
  Array q = random_array(F32, queries), k = random_array(F32, keys), v = random_array(F32, keys);
  Array o = unwritten(F32, queries);
  const BlockGrid grid = {.seq = 200, .seq_kv = 300, .block = {32, 64}, .causal = true};
  const Array mask = random_mask(1, 4, grid, 0.4, std::random_device{}());

  const BlockSparseAttention attend =
      block_sparse_attention(device("host"), {.dtype = F32,
                                              .head_dim = 64,
                                              .block = {32, 64},
                                              .causal = true,
                                              .form = BlockForm::MaskBool});
  const AttentionArgs args = {
      .q = q.view(), .k = k.view(), .v = v.view(), .o = o.view(), .mask = mask.view()};
  attend(args);
  const AttentionReference reference = attention_reference(attend.config(), args, all_rows(args));
  return report("attention", compare(o.values(), reference.o, 64, accuracy_rule(F32)));
}

static bool decode() {
  const Shape cache = {2, 100, 2, 32};
  Array q = random_array(F16, {2, 8, 32}), k = random_array(F16, cache);
  Array v = random_array(F16, cache), o = unwritten(F16, {2, 8, 32});
  Array lengths(I32, {2}, std::vector<double>{100, 37});
  const SparseDecode step = sparse_decode(
      device("host"), {.dtype = F16, .head_dim = 32, .block = 16, .form = DecodeForm::Dense});
  const DecodeArgs args = {
      .q = q.view(), .k = k.view(), .v = v.view(), .o = o.view(), .lengths = lengths.view()};
  step(args);
  const DecodeReference reference = decode_reference(step.config(), args);
  return report("decode", compare(o.values(), reference.o, 32, accuracy_rule(F16)));
}

int main() try {
  const std::string headers = std::to_string(KILN_VERSION_MAJOR) + "." +
                              std::to_string(KILN_VERSION_MINOR) + "." +
                              std::to_string(KILN_VERSION_PATCH);
  if (version() != headers) throw std::runtime_error("headers of another version: " + headers);

  std::cout << "kiln " << version() << "\n";
  return attention() && decode() ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
