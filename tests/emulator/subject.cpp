#include "tests/emulator/subject.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/canon.h"
#include "kernels/compare.h"
#include "runtime/gpu_code.h"

namespace kiln::testing {
namespace {

// Calls visit(index, element number) for all elements.
template <class Visit>
void for_each_element(const Shape& shape, const Shape& strides, Visit visit) {
  Shape index(shape.size(), 0);
  for (int64_t left = count(shape); left > 0; --left) {
    int64_t at = 0;
    for (size_t axis = 0; axis < shape.size(); ++axis) at += index[axis] * strides[axis];
    visit(std::as_const(index), at);
    for (size_t axis = shape.size(); axis-- > 0;) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
  }
}

}  // namespace

std::string SubjectInfo::name() const {
  std::string text = kernel;
  for (const auto& [option, value] : options) text += fmt::format(" {}={}", option, value);
  return text;
}

Tensors::Tensors(const Kernel& kernel, const ProblemShape& shape,
                 std::map<std::string, Scalar> params)
    : shape_(shape), params_(std::move(params)) {
  TopLevel top(kernel, shape_.dims, params_);
  for (OpId id : kernel.region(kernel.body).ops) {
    const Op& op = kernel.op(id);
    if (op.code == OpCode::Tensor && op.word("role") != "workspace")
      add(op.word("name"), op.word("role"), kernel.type(op.result).dtype, top.shape(op));
  }
}

void Tensors::add(const std::string& name, const std::string& role, DType dtype, Shape shape) {
  Tensor tensor{role, {nullptr, dtype, shape, Shape(shape.size(), 1)}, 0, {}};
  int64_t elements = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    tensor.memory.strides[axis] = elements;
    elements *= shape[axis];
    if (axis + 1 == shape.size() && axis > 0) elements += shape_.gap;
  }
  const auto width = static_cast<int64_t>(size_of(dtype));
  tensor.offset = static_cast<int64_t>(sizeof(Chunk)) + shape_.offset * width;
  const auto bytes = static_cast<size_t>(tensor.offset + elements * width);
  // −1 is NaN in every float type and counts as set in a mask; as a list's entry, 0 counts.
  Chunk chunk;
  std::fill(std::begin(chunk.bytes), std::end(chunk.bytes), std::byte(dtype == I32 ? 0 : 0xFF));
  tensor.all.assign(bytes / sizeof(Chunk) + 2, chunk);
  Tensor& added = tensors_.emplace(name, std::move(tensor)).first->second;
  if (role == "output") return;
  for_each_element(shape, added.memory.strides, [&](const Shape& index, int64_t at) {
    store_element(element(name, dtype, index), added.data() + at * width);
  });
}

// Masks and lists have empty rows, lists also entries that are to be passed over, one twice, and
// counts beyond their ends.
Scalar Tensors::element(const std::string& name, DType dtype, const Shape& index) {
  if (is_float(dtype))
    return convert(Scalar::of_float(F64, std::normal_distribution<double>()(random_)), dtype);
  const bool all = shape_.density == 1;
  const int64_t entries = shape_.dims.contains("entries") ? shape_.dims.at("entries") : 0;
  if (name == "counts") {
    const int64_t third = (index[0] + index[1] + index[2]) % 3;
    return Scalar::of_int(dtype, all || third == 0 ? entries + 1 : third == 1 ? 0 : entries - 1);
  }
  if (name == "indices") {
    if (index.back() == 0) {
      row_.clear();
      for (int64_t i = 0; i < entries + (all ? 0 : 2); ++i)
        row_.push_back(all || chance(shape_.density) ? i : -1 - i);
      std::shuffle(row_.begin(), row_.end(), random_);
      if (!all && entries > 1) row_[0] = row_[1] = std::max(row_[0], -1 - row_[0]) % entries;
    }
    return Scalar::of_int(dtype, row_[static_cast<size_t>(index.back())]);
  }
  const bool empty = !all && (index[0] + index[1] + index[2]) % 3 == 1;
  return Scalar::of_int(dtype, !empty && chance(shape_.density));
}

Bindings Tensors::bindings() {
  Bindings result{{}, shape_.dims, params_};
  for (auto& [name, tensor] : tensors_) {
    Memory& memory = result.tensors[name] = tensor.memory;
    memory.data = tensor.data();
  }
  return result;
}

bool Tensors::operator==(const Tensors& other) const {
  for (const auto& [name, tensor] : tensors_)
    if (!std::ranges::equal(tensor.bytes(), other.tensors_.at(name).bytes())) return false;
  return true;
}

std::string Tensors::damage(const Tensors& before) const {
  for (const auto& entry : tensors_) {
    const Tensor &tensor = entry.second, &was = before.tensors_.at(entry.first);
    std::vector<std::byte> rest(tensor.bytes().begin(), tensor.bytes().end());
    const size_t width = size_of(tensor.memory.dtype);
    if (tensor.role != "input")  // as if the elements had not been written
      for_each_element(tensor.memory.shape, tensor.memory.strides, [&](const Shape&, int64_t at) {
        const size_t byte = static_cast<size_t>(tensor.offset) + static_cast<size_t>(at) * width;
        std::copy_n(was.bytes().begin() + static_cast<std::ptrdiff_t>(byte), width, &rest[byte]);
      });
    if (!std::ranges::equal(rest, was.bytes()))
      return fmt::format("{} '{}' was written where it must not be", tensor.role, entry.first);
  }
  return "";
}

Subject::Subject(const SubjectInfo& info)
    : info_(info),
      entry_(kernel_named(info.kernel)),
      options_(entry_.with_defaults(info.options)),
      kernel_(canonical(entry_.build(options_, info.target))),
      code_(compile_for_gpu(kernel_, info.target).code) {
  for (const ProblemShape& shape : info.problems)
    problems_.push_back({Tensors(kernel_, shape, entry_.default_params(options_))});
  const auto as_it_is = executable(code_.ptx);
  for (size_t i = 0; i < problems_.size(); ++i) {
    Problem& problem = problems_[i];
    const Bindings bindings = problem.inputs.bindings();
    entry_.check(options_, bindings);
    problem.reference = entry_.reference(options_, bindings);
    for (ptx::AsyncMode mode : kModes) {
      Tensors results = problem.inputs;
      Run right = run(*as_it_is, problem, mode, results);
      if (problem.results.empty()) {
        problem.results.push_back(std::move(results));
        right.same = true;
      }
      problem.right.emplace(mode, std::move(right));
    }
    uint64_t most = 0;
    for (const ptx::Report& report : right(i, kModes[0]).reports)
      most = std::max(most, report.counters.warp_instructions);
    problem.most_instructions = 2 * most + 10000;
  }
}

std::unique_ptr<Executable> Subject::executable(const std::string& ptx) const {
  GpuCode code = code_;
  code.ptx = ptx;
  return emulated(kernel_, std::move(code));
}

const Run& Subject::right(size_t problem, ptx::AsyncMode mode) const {
  return problems_[problem].right.at(mode);
}

Run Subject::run(const Executable& executable, size_t problem, ptx::AsyncMode mode) const {
  Tensors results = problems_[problem].inputs;
  return run(executable, problems_[problem], mode, results);
}

Run Subject::run(const Executable& executable, const Problem& problem, ptx::AsyncMode mode,
                 Tensors& results) const {
  ptx::Options options;
  options.async = mode;
  options.threads = 1;
  options.max_instructions = problem.most_instructions;
  Run run;
  run.reports = emulate(executable, results.bindings(), options);
  for (const ptx::Report& report : run.reports)
    for (const ptx::Finding& finding : report.findings)
      if (run.finding.empty()) run.finding = finding.text();
  run.same = !problem.results.empty() && results == problem.results.front();
  if (!run.same) run.wrong = compared(problem, results);
  return run;
}

std::string Subject::compared(const Problem& problem, Tensors& results) const {
  if (std::string damage = results.damage(problem.inputs); !damage.empty()) return damage;
  const Bindings bindings = results.bindings();
  for (const auto& [name, reference] : problem.reference) {
    const Memory& memory = bindings.tensors.at(name);
    const AccuracyRule rule = name == "lse" ? lse_accuracy_rule() : accuracy_rule(memory.dtype);
    const Comparison result = compare(to_doubles(memory), reference, memory.shape.back(), rule);
    if (!result.ok()) return fmt::format("{}: {}", name, result.str());
  }
  return "";
}

}  // namespace kiln::testing
