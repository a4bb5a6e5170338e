#include <cstdio>
#include <cstring>

#include "examples/examples.h"
#include "ir/error.h"

namespace examples {
namespace {

struct Entry {
  const char* name;
  int (*main)(int, char**);
};
constexpr Entry kExamples[] = {
    {"relu_attention", relu_attention},
    {"softcap_attention", softcap_attention},
    {"linear_attention", linear_attention},
    {"norm_gemm", norm_gemm},
    {"stencil", stencil},
    {"long_topk", long_topk},
    {"histogram", histogram},
    {"transpose", transpose},
};

}  // namespace

int run(int argc, char** argv) {
  try {
    for (const Entry& example : kExamples)
      if (argc > 1 && std::strcmp(argv[1], example.name) == 0)
        return example.main(argc - 1, argv + 1);
  } catch (const kiln::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::fprintf(stderr, "usage: examples NAME [--device NAME] [--option …]\nNAME:");
  for (const Entry& example : kExamples) std::fprintf(stderr, " %s", example.name);
  std::fprintf(stderr, "\n");
  return 1;
}

}  // namespace examples
