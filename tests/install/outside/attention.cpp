// A call of the library from a program outside, checked against the library's float64 reference.
#include <kiln/kernels/kernels.h>
#include <kiln/version.h>

#include <cmath>
#include <iostream>
#include <random>

using namespace kiln;

static_assert(KILN_VERSION_MAJOR == 0 && KILN_VERSION_MINOR >= 1 && KILN_VERSION_PATCH >= 0);

int main() try {
  const std::string headers = std::to_string(KILN_VERSION_MAJOR) + "." +
                              std::to_string(KILN_VERSION_MINOR) + "." +
                              std::to_string(KILN_VERSION_PATCH);
  if (version() != headers) throw std::runtime_error("headers of another version: " + headers);

  const Shape queries = {1, 4, 200, 64}, keys = {1, 2, 300, 64};
  Array q(F32, queries), k(F32, keys), v(F32, keys), o(F32, queries);
  std::mt19937 random(std::random_device{}());
  for (Array* array : {&q, &k, &v})
    for (float& value : array->span<float>()) value = std::normal_distribution<float>()(random);
  for (float& value : o.span<float>()) value = NAN;
  const BlockGrid grid = {.seq = 200, .seq_kv = 300, .causal = true};
  const Array mask = random_mask(1, 4, grid, 0.4, random());

  const BlockSparseAttention attend =
      block_sparse_attention(device("host"), {.dtype = F32, .head_dim = 64, .causal = true});
  const AttentionArgs args = {
      .q = q.view(), .k = k.view(), .v = v.view(), .o = o.view(), .mask = mask.view()};
  attend(args);

  const AttentionReference reference = attention_reference(attend.config(), args, all_rows(args));
  const Comparison result = compare(o.values(), reference.o, 64, accuracy_rule(F32));
  std::cout << "kiln " << version() << ": " << result.str() << "\n";
  return result.ok() ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
