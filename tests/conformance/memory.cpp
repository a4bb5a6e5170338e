// Loads, stores, barriers, cp.async.
#include <fmt/format.h>

#include <algorithm>

#include "tests/conformance/table.h"

namespace kiln::conformance {
namespace {

// Gives each thread 32 bytes of a space, at `address`.
struct Space {
  const char* name;
  const char* declaration;
  const char* address;
  const char* clear = "";  // of slots that results follow in
};
const Space kSpaces[] = {
    {"shared", ".shared .align 16 .b8 area[8192]; mov.u32 %r1, area; mad.lo.u32 %r1, %r0, 32, %r1;",
     "%r1"},
    {"local", ".local .align 16 .b8 area[32]; mov.u64 %d2, area;", "%d2"},
    {"global", "mov.u64 %d2, %d0;", "%d2", "mov.u64 %d3, 0; st.global.b64 [%d2], %d3;"},
};

std::string list(size_t first, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += fmt::format("{}${}", i ? ", " : "", first + i);
  return text;
}

// A vector access against scalar ones.
void vectors(Table& table) {
  for (const Space& space : kSpaces)
    for (size_t count : {size_t{2}, size_t{4}})
      for (size_t bytes : {size_t{1}, size_t{2}, size_t{4}, size_t{8}})
        for (bool loads : {false, true}) {
          if (count * bytes > 16) continue;
          std::string type = fmt::format("b{}", 8 * bytes), scalar;
          std::string vector =
              fmt::format("{}.{}.v{}.{} ", loads ? "ld" : "st", space.name, count, type);
          for (size_t i = 0; i < count; ++i)
            scalar += loads ? fmt::format("st.{}.{} [{}+{}], ${}; ", space.name, type,
                                          space.address, i * bytes, count + i)
                            : fmt::format("ld.{}.{} ${}, [{}+{}]; ", space.name, type, i,
                                          space.address, i * bytes);
          std::string text = loads ? fmt::format("{}{}{{{}}}, [{}];", scalar, vector,
                                                 list(0, count), space.address)
                                   : fmt::format("{}[{}], {{{}}}; {}", vector, space.address,
                                                 list(count, count), scalar);
          std::string clear = space.clear;  // 16 bytes
          if (!clear.empty()) clear += "st.global.b64 [%d2+8], %d3;";
          table.add(Row{.text = fmt::format("{{ {} {} {} }}", space.declaration, text, clear),
                        .results = std::vector<std::string>(count, type),
                        .operands = std::vector<std::string>(count, type),
                        .name = vector},
                    [=](const Operands& in, size_t thread) {
                      std::vector<uint64_t> result;
                      for (size_t i = 0; i < count; ++i) result.push_back(in(thread, i));
                      return result;
                    });
        }
}

// A register wider than what is loaded holds it extended.
void extending(Table& table) {
  for (const Space& space : kSpaces)
    for (std::string type : {"s8", "u8", "s16", "u16", "s32", "u32"})
      for (unsigned holder : {32u, 64u}) {
        unsigned width = static_cast<unsigned>(std::stoi(type.substr(1)));
        if (width >= holder) continue;
        std::string load = fmt::format("ld.{}.{}", space.name, type);
        table.add(Row{.text = fmt::format("{{ {0} st.{1}.b64 [{2}], $1; {3} $0, [{2}+4]; {4} }}",
                                          space.declaration, space.name, space.address, load,
                                          space.clear),
                      .results = {fmt::format("b{}", holder)},
                      .operands = {"b64"},
                      .name = fmt::format("{} into {} bits", load, holder)},
                  [=](const uint64_t* in) {
                    uint64_t top = in[0] >> 32 << (64 - width);
                    uint64_t value =
                        type[0] == 's'
                            ? static_cast<uint64_t>(static_cast<int64_t>(top) >> (64 - width))
                            : top >> (64 - width);
                    return value << (64 - holder) >> (64 - holder);
                  });
      }
}

void barriers(Table& table) {
  for (std::string barrier : {"bar.sync 0", "bar.sync 3", "bar.sync 1, 256", "barrier.sync 2"}) {
    table.add(Row{.text = fmt::format("{{ .shared .align 4 .b32 area[256]; mov.u32 %r1, area;"
                                      "mad.lo.u32 %r2, %r0, 4, %r1; st.shared.b32 [%r2], $1; {};"
                                      "sub.u32 %r3, 255, %r0; mad.lo.u32 %r2, %r3, 4, %r1;"
                                      "ld.shared.b32 $0, [%r2]; }}",
                                      barrier),
                  .results = {"b32"},
                  .operands = {"b32"},
                  .name = barrier},
              [](const Operands& in, size_t thread) {
                return std::vector<uint64_t>{in(255 - thread, 0)};
              });
  }
  struct Reduction {
    const char* text;
    uint64_t (*compute)(uint64_t holds);
  };
  const Reduction kReductions[] = {
      {"bar.red.popc.u32 $0, 0, %p1;", [](uint64_t holds) { return holds; }},
      {"bar.red.and.pred %p2, 0, %p1; selp.u32 $0, 1, 0, %p2;",
       [](uint64_t holds) { return uint64_t{holds == 256}; }},
      {"bar.red.or.pred %p2, 0, %p1; selp.u32 $0, 1, 0, %p2;",
       [](uint64_t holds) { return uint64_t{holds != 0}; }},
  };
  for (const Reduction& reduction : kReductions)
    for (unsigned limit : {0u, 100u, 256u})
      table.add(
          Row{.text = fmt::format("setp.lt.u32 %p1, $1, {}; {}", limit, reduction.text),
              .results = {"u32"},
              .operands = {"u32"},
              .value = [](size_t, size_t, std::mt19937_64& random) { return random() % 256; }},
          [=](const Operands& in, size_t) {
            uint64_t holds = 0;
            for (uint64_t x : in.all) holds += x < limit;
            return std::vector<uint64_t>{reduction.compute(holds)};
          });
}

// 16 bytes of ones in shared memory, of which a copy overwrites the first: those beyond the size of
// the source become 0.
void copies(Table& table) {
  for (size_t bytes : {size_t{4}, size_t{8}, size_t{16}})
    for (const char* level : {"ca", "cg"})
      for (bool sized : {false, true})
        for (const char* wait :
             {"cp.async.wait_all;", "cp.async.commit_group; cp.async.wait_group 0;"}) {
          if (bytes < 16 && level[1] == 'g') continue;
          std::string copy = fmt::format("cp.async.{}.shared.global [%r1], [%d1], {}{};", level,
                                         bytes, sized ? ", $4" : "");
          table.add(Row{.text = fmt::format(
                            "{{ .shared .align 16 .b8 area[4096]; mov.u32 %r1, area;"
                            "mad.lo.u32 %r1, %r0, 16, %r1; mov.u64 %d2, -1;"
                            "st.shared.v2.b64 [%r1], {{%d2, %d2}}; bar.sync 0; {} {} bar.sync 0;"
                            "ld.shared.v2.b64 {{$0, $1}}, [%r1]; }}",
                            copy, wait),
                        .results = {"b64", "b64"},
                        .operands = {"b64", "b64", "u32", "u32"},
                        .name = copy + " " + wait,
                        .value =
                            [=](size_t, size_t i, std::mt19937_64& random) {
                              uint64_t any = random();
                              return i == 2 ? any % (bytes + 1) : any;
                            }},
                    [=](const Operands& in, size_t thread) {
                      size_t given = sized ? in(thread, 2) : bytes;
                      std::vector<uint64_t> result = {~uint64_t{0}, ~uint64_t{0}};
                      for (size_t i = 0; i < bytes; ++i) {
                        uint64_t byte = in(thread, i / 8) >> (8 * (i % 8)) & 0xff;
                        uint64_t mask = uint64_t{0xff} << (8 * (i % 8));
                        result[i / 8] &= ~mask;
                        if (i < given) result[i / 8] |= byte << (8 * (i % 8));
                      }
                      return result;
                    });
        }
}

}  // namespace

void add_memory(Table& table) {
  vectors(table);
  extending(table);
  barriers(table);
  copies(table);
}

}  // namespace kiln::conformance
