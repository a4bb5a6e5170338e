// The examples by name. Each parses its own options, argv[0] left out; returns the exit status.
#pragma once

#include <string_view>

namespace examples {

int relu_attention(int argc, char** argv);
int softcap_attention(int argc, char** argv);
int linear_attention(int argc, char** argv);
int norm_gemm(int argc, char** argv);
int stencil(int argc, char** argv);
int long_topk(int argc, char** argv);
int histogram(int argc, char** argv);
int transpose(int argc, char** argv);

// `examples NAME [--option …]`: runs one; an error is printed and gives 1.
int run(int argc, char** argv);

}  // namespace examples
