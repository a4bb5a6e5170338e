#include "tests/ptx/support.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <random>

namespace kiln::ptx {

std::string entry(int parameters, const std::string& body, const std::string& module) {
  std::string list;
  for (int i = 0; i < parameters; ++i) list += fmt::format("{}.param .u64 p{}", i ? ", " : "", i);
  return fmt::format(
      ".version 8.0\n.target sm_90\n.address_size 64\n{}\n.visible .entry test({})\n{{\n"
      ".reg .pred %p<32>; .reg .b16 %h<64>; .reg .b32 %r<64>; .reg .b64 %d<64>; .reg .b128 %q<8>;\n"
      "{}\nret;\n}}\n",
      module, list, body);
}

std::vector<uint64_t> run_warp(const std::string& body, std::vector<uint64_t> input,
                               Options options) {
  input.resize(4 * 32);
  std::vector<uint64_t> output(32);
  Memory memory;
  memory.add(input.data(), 8 * input.size(), "input");
  memory.add(output.data(), 8 * 32, "output");
  Program program = parse(entry(2,
                                "mov.u32 %r0, %tid.x;\n"
                                "ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1];\n"
                                "mad.wide.u32 %d0, %r0, 8, %d0; mad.wide.u32 %d1, %r0, 32, %d1;\n" +
                                    body));
  Parameters parameters;
  parameters.add(output.data()).add(input.data());
  Report report = launch(program, "test", {1}, {32}, 0, parameters.bytes(), memory, options);
  if (!report.findings.empty()) throw std::runtime_error(findings(report));
  return output;
}

namespace {

// Zeros, ones, ends of ranges and special floats of each width, then anything.
uint64_t some_value(std::mt19937_64& random, int bytes) {
  static const std::vector<uint64_t> k16 = {0,      1,      2,      0xffff, 0x7fff, 0x8000, 0x7c00,
                                            0xfc00, 0x7e00, 0x0001, 0x03ff, 0x0400, 0x3c00, 0xbc00,
                                            0x7bff, 0x7f80, 0x3f80, 0x0080, 0x007f};
  static const std::vector<uint64_t> k32 = {
      0,          1,          31,         32,         0xffffffff, 0x7fffffff, 0x80000000,
      0x7f800000, 0xff800000, 0x7fc00000, 0x00000001, 0x007fffff, 0x00800000, 0x3f800000,
      0xbf800000, 0x7f7fffff, 0x40490fdb, 0x4b000001, 0x33800000, 0xc2fe0000};
  static const std::vector<uint64_t> k64 = {0,
                                            1,
                                            63,
                                            64,
                                            0xffffffffffffffff,
                                            0x7fffffffffffffff,
                                            0x8000000000000000,
                                            0x7ff0000000000000,
                                            0xfff0000000000000,
                                            0x7ff8000000000000,
                                            0x3ff0000000000000,
                                            0x0000000000000001,
                                            0x000fffffffffffff,
                                            0x0010000000000000,
                                            0x400921fb54442d18,
                                            0x7fefffffffffffff};
  const auto& special = bytes == 2 ? k16 : bytes == 4 ? k32 : k64;
  uint64_t mask = bytes == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * bytes)) - 1;
  uint64_t any = random();
  switch (any % 4) {
    case 0: return special[random() % special.size()];
    case 1:  // a float near 1, whatever the width
      return bytes == 2   ? 0x3800 + random() % 0x0c00
             : bytes == 4 ? 0x3e000000 + random() % 0x04000000
                          : 0x3fd0000000000000 + random() % 0x0080000000000000;
    case 2: return random() & mask & 0x3f;
    default: return random() & mask;
  }
}

}  // namespace

void check_op(const std::string& text, std::vector<int> bytes, const Compute& compute) {
  auto name = [&](size_t i) {
    return fmt::format("%{}{}", bytes[i] == 2 ? "h" : bytes[i] == 4 ? "r" : "d", 10 + i);
  };
  std::string body;
  for (size_t i = 1; i < bytes.size(); ++i)
    body += fmt::format("ld.global.b{} {}, [%d1+{}];\n", 8 * bytes[i], name(i), 8 * (i - 1));
  for (size_t at = 0; at < text.size(); ++at)
    if (text[at] == '$')
      body += name(static_cast<size_t>(text[++at] - '0'));
    else
      body += text[at];
  body += fmt::format("\nst.global.b{} [%d0], {};", 8 * bytes[0], name(0));
  std::mt19937_64 random(text.size() * 7919 + 1);
  for (int round = 0; round < 8; ++round) {
    std::vector<uint64_t> input(4 * 32);
    for (size_t lane = 0; lane < 32; ++lane)
      for (size_t i = 1; i < bytes.size(); ++i)
        input[4 * lane + i - 1] = some_value(random, bytes[i]);
    std::vector<uint64_t> output = run_warp(body, input);
    for (size_t lane = 0; lane < 32; ++lane) {
      const uint64_t* operands = &input[4 * lane];
      INFO(fmt::format("{} of {:#x}, {:#x}, {:#x}", text, operands[0], operands[1], operands[2]));
      CHECK(fmt::format("{:#x}", output[lane]) == fmt::format("{:#x}", compute(operands)));
    }
  }
}

Report run_text(const std::string& text, std::vector<std::vector<uint8_t>*> arrays, Dim3 grid,
                Dim3 block, size_t dynamic_shared, Options options) {
  Memory memory;
  Parameters parameters;
  for (size_t i = 0; i < arrays.size(); ++i) {
    memory.add(arrays[i]->data(), arrays[i]->size(), fmt::format("array{}", i));
    parameters.add(arrays[i]->data());
  }
  Program program = parse(text);
  return launch(program, program.entries().at(0), grid, block, dynamic_shared, parameters.bytes(),
                memory, options);
}

bool has(const Report& report, FindingKind kind) {
  for (const Finding& finding : report.findings)
    if (finding.kind == kind) return true;
  return false;
}

std::string findings(const Report& report) {
  std::string all;
  for (const Finding& finding : report.findings) all += finding.text() + "\n";
  return all;
}

}  // namespace kiln::ptx
