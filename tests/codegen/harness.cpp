#include "tests/codegen/harness.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <memory>

#include "ir/canon.h"
#include "ir/parse.h"
#include "ir/verify.h"
#include "passes/pipeline.h"
#include "runtime/array.h"
#include "tests/support/on_device.h"

namespace kiln::testing {
namespace {

std::vector<uint64_t> slot_values(const HostLaunch& launch, const Bindings& bindings) {
  std::vector<uint64_t> values;
  for (const Slot& slot : launch.slots) {
    switch (slot.kind) {
      case Slot::Kind::Pointer:
        values.push_back(reinterpret_cast<uint64_t>(bindings.tensors.at(slot.name).data));
        break;
      case Slot::Kind::Stride:
        values.push_back(static_cast<uint64_t>(
            bindings.tensors.at(slot.name).strides[static_cast<size_t>(slot.axis)]));
        break;
      case Slot::Kind::Dim:
        values.push_back(static_cast<uint64_t>(bindings.dims.at(slot.name)));
        break;
      case Slot::Kind::Param: {
        uint64_t bits = 0;
        store_element(bindings.params.at(slot.name), &bits);
        values.push_back(bits);
        break;
      }
      case Slot::Kind::Map: break;  // the host's code has none
    }
  }
  return values;
}

}  // namespace

bool on_host() {
  return std::getenv("KILN_TEST_DEVICE") == nullptr;
}

const std::vector<Level>& levels() {
  static const std::vector<Level> found = [] {
    std::vector<Level> list;
    if (!on_host()) {
      Device& target = device(std::getenv("KILN_TEST_DEVICE"));
      list.push_back({std::string(target.name()), [&target](const Kernel& kernel) -> Run {
                        auto code = std::shared_ptr<Executable>(target.compile(canonical(kernel)));
                        return [&target, code](const Bindings& bindings) {
                          run_on(target, *code, bindings);
                        };
                      }});
      return list;
    }
    auto add = [&](const host::Target& target) {
      list.push_back({target.cpu, [target](const Kernel& kernel) -> Run {
                        HostObject object = host::compile(kernel, target);
                        return [&kernel, object](const Bindings& bindings) {
                          run_host(kernel, bindings, object);
                        };
                      }});
    };
    add(host::this_cpu());
    add(host::named_cpu("x86-64"));
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
      add(host::named_cpu("x86-64-v3"));
    return list;
  }();
  return found;
}

void run_host(const Kernel& kernel, const Bindings& given, const HostObject& object) {
  HostCode code(object);
  TopLevel top(kernel, given.dims, given.params);
  Bindings bindings = given;
  std::list<std::vector<std::byte>> workspaces;
  for (OpId id : kernel.region(kernel.body).ops) {
    const Op& op = kernel.op(id);
    if (op.code != OpCode::Tensor || op.word("role") != "workspace") continue;
    const DType dtype = kernel.type(op.result).dtype;
    const Shape shape = top.shape(op);
    workspaces.emplace_back(bytes_of(dtype, shape), std::byte{0xA5});
    bindings.tensors[op.word("name")] = Memory::contiguous(workspaces.back().data(), dtype, shape);
  }
  size_t number = 0;
  for (OpId id : kernel.region(kernel.body).ops) {
    const Op& op = kernel.op(id);
    if (op.code != OpCode::Launch) continue;
    const HostLaunch& launch = object.launches[number];
    std::vector<uint64_t> slots = slot_values(launch, bindings);
    const size_t bytes = (launch.scratch_bytes + 63) / 64 * 64;
    std::unique_ptr<void, decltype(&std::free)> scratch(std::aligned_alloc(64, bytes), &std::free);
    // Signalling garbage: what is never written must not matter.
    std::memset(scratch.get(), 0xA5, bytes);
    std::vector<int64_t> grid = top.grid(op);
    slots.push_back(static_cast<uint64_t>(grid[0] * grid[1] * grid[2]));
    for (int64_t z = 0; z < grid[2]; ++z)
      for (int64_t y = 0; y < grid[1]; ++y)
        for (int64_t x = 0; x < grid[0]; ++x)
          run_block(code, number, launch, slots.data(), {x, y, z}, scratch.get());
    ++number;
  }
}

namespace {

// What is compiled may be the kernel as passes have made it.
std::string compare(const Kernel& kernel, const Kernel& compiled,
                    const std::vector<Check>& checks) {
  std::vector<Run> runs;
  for (const Level& level : levels()) runs.push_back(level.compile(compiled));
  for (const Check& check : checks) {
    RandomBindings expected(kernel, check.dims, check.params, check.options);
    const RandomBindings fresh = expected;
    interpret(kernel, expected.bindings());
    for (size_t level = 0; level < runs.size(); ++level) {
      RandomBindings actual = fresh;
      runs[level](actual.bindings());
      std::string problem = actual.damage();
      if (problem.empty()) problem = actual.difference(expected, check.tolerance);
      if (!problem.empty())
        return fmt::format("{}, seed {}: {}", levels()[level].name, check.options.seed, problem);
    }
  }
  return "";
}

}  // namespace

std::string check_program(const Kernel& kernel, const std::vector<Check>& checks) {
  verify(kernel);
  return compare(kernel, kernel, checks);
}

std::string check_lowered(const Kernel& kernel, const std::vector<Check>& checks) {
  if (!on_host()) return check_program(kernel, checks);
  Kernel lowered = kernel;
  run_passes(lowered, pipeline_for(Tier::Host), {.verify_each = true, .after_each = {}});
  return compare(kernel, lowered, checks);
}

std::string check_program(const Kernel& kernel, const Check& check) {
  return check_program(kernel, std::vector<Check>{check});
}

std::string check_program(const std::string& text, const Check& check) {
  return check_program(parse(text), check);
}

Value Program::tensor(const std::string& name, DType dtype, Shape shape, const char* role,
                      std::vector<Value> extents) {
  Attrs attrs;
  attrs.set("name", name);
  attrs.set("role", std::string(role));
  OpId op =
      b.emit(OpCode::Tensor, std::move(extents), attrs, Type::tensor(dtype, std::move(shape)));
  return kernel.op(op).result;
}

Value Program::dim(const std::string& name) {
  Attrs attrs;
  attrs.set("name", name);
  return kernel.op(b.emit(OpCode::Dim, {}, attrs, Type::scalar(I32))).result;
}

uint64_t random_seed() {
  static const uint64_t seed = [] {
    const char* given = std::getenv("KILN_SEED");
    uint64_t chosen =
        given ? std::strtoull(given, nullptr, 10)
              : static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
    std::printf("KILN_SEED=%llu\n", static_cast<unsigned long long>(chosen));
    return chosen;
  }();
  return seed;
}

}  // namespace kiln::testing
