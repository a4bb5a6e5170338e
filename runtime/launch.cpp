#include "runtime/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "ir/error.h"
#include "runtime/overlap.h"

namespace kiln {
namespace {

constexpr int64_t kMaxExtent = std::numeric_limits<int32_t>::max();  // dims are i32

std::string list(const Shape& numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ", "));
}

std::string describe(const Memory& memory) {
  return fmt::format("{} {}", name(memory.dtype), list(memory.shape));
}

std::string describe(const Scalar& value) {
  return is_float(value.dtype) ? fmt::format("{}", value.f)
         : value.dtype == U64  ? fmt::format("{}", static_cast<uint64_t>(value.i))
                               : fmt::format("{}", value.i);
}

bool is_empty(const Memory& memory) {
  return std::find(memory.shape.begin(), memory.shape.end(), 0) != memory.shape.end();
}

// The value in a param's dtype. Floats may round; an integer or bool must be met exactly.
std::optional<Scalar> as_param(const Scalar& value, DType dtype) {
  constexpr double kExactIntegers = 9007199254740992.0;  // 2^53
  Scalar converted = convert(value, dtype);
  if (is_float(dtype)) {
    bool finite = !is_float(value.dtype) || std::isfinite(value.f);
    return finite && !std::isfinite(converted.f) ? std::nullopt : std::optional(converted);
  }
  if (is_float(value.dtype)) {
    bool exact = std::abs(value.f) <= kExactIntegers && convert(converted, F64).f == value.f;
    return exact ? std::optional(converted) : std::nullopt;
  }
  auto negative = [](const Scalar& x) { return is_signed_int(x.dtype) && x.i < 0; };
  bool exact =
      convert(converted, value.dtype).i == value.i && negative(converted) == negative(value);
  return exact ? std::optional(converted) : std::nullopt;
}

// One check after another; each may rely on those before it.
class Binder {
 public:
  Binder(const Signature& signature, const Arguments& arguments, bool outputs_may_lack)
      : signature_(signature), arguments_(arguments), outputs_may_lack_(outputs_may_lack) {
    check_names();
    for (const TensorInfo& tensor : signature_.tensors())
      if (const Memory* memory = given(tensor)) check_shape(tensor, *memory);
    bind_dims();
    bind_params();
    top_.emplace(signature_.kernel(), bound_.dims, bound_.params);
    for (const TensorInfo& tensor : signature_.tensors())
      if (const Memory* memory = given(tensor)) {
        check_computed(tensor, *memory);
        check_layout(tensor, *memory);
        bound_.tensors.emplace(tensor.name, *memory);
      }
    check_overlap();
    check_launches();
  }

  Bindings take() { return std::move(bound_); }

  Shape shape_of(const TensorInfo& tensor) const {
    Shape shape;
    for (const AxisInfo& axis : tensor.axes) {
      shape.push_back(axis.value ? top_->scalar(axis.value).i : axis.extent);
      if (shape.back() < 0)
        fail(fmt::format("{}: expected {}, but {} is {} for these arguments", tensor.name,
                         tensor.text(), axis.text, shape.back()),
             "other dims or params: it takes " + signature_.text());
    }
    return shape;
  }

 private:
  [[noreturn]] void fail(const std::string& text, const std::string& hint = "") const {
    throw UserError(fmt::format("{}: {}", signature_.kernel().name, text), hint);
  }
  [[noreturn]] void mismatch(const TensorInfo& tensor, const Memory& memory,
                             const std::string& hint, const std::string& detail = "") const {
    fail(fmt::format("{}: expected {}, got {}{}{}", tensor.name, tensor.text(), describe(memory),
                     detail.empty() ? "" : ": ", detail),
         hint);
  }

  const Memory* given(const TensorInfo& tensor) const {
    auto it = arguments_.tensors().find(tensor.name);
    return it == arguments_.tensors().end() ? nullptr : &it->second;
  }

  void check_names() const {
    auto unknown = [&](const char* kind, const std::string& name) {
      fail(fmt::format("there is no {} '{}'", kind, name), "it takes " + signature_.text());
    };
    for (const auto& [name, memory] : arguments_.tensors())
      if (!signature_.tensor(name)) unknown("tensor", name);
    for (const auto& [name, value] : arguments_.dims())
      if (!signature_.has_dim(name)) unknown("dim", name);
    for (const auto& [name, value] : arguments_.params())
      if (!signature_.param(name)) unknown("param", name);

    std::vector<std::string_view> missing;
    for (const TensorInfo& tensor : signature_.tensors())
      if (!given(tensor) && !(outputs_may_lack_ && tensor.role == Role::Output))
        missing.push_back(tensor.name);
    for (const ParamInfo& param : signature_.params())
      if (!arguments_.params().count(param.name)) missing.push_back(param.name);
    if (!missing.empty())
      fail(fmt::format("missing {}", fmt::join(missing, ", ")), "it takes " + signature_.text());
  }

  void check_shape(const TensorInfo& tensor, const Memory& memory) {
    size_t rank = tensor.axes.size();
    if (memory.dtype != tensor.dtype)
      mismatch(tensor, memory, fmt::format("pass a copy converted to {}", name(tensor.dtype)));
    if (memory.shape.size() != rank)
      mismatch(tensor, memory, fmt::format("a view of it with {} axes", rank));
    if (memory.strides.size() != rank)
      fail(fmt::format("{}: expected {} strides, got {}", tensor.name, rank, list(memory.strides)),
           "one stride an axis, in elements");
    for (size_t i = 0; i < rank; ++i) {
      const AxisInfo& axis = tensor.axes[i];
      int64_t extent = memory.shape[i];
      if (extent < 0)
        mismatch(tensor, memory, "extents are 0 or more", fmt::format("axis {} is negative", i));
      if (extent > kMaxExtent)
        mismatch(tensor, memory, "several calls, each with a part of it",
                 fmt::format("axis {} is longer than {}", i, kMaxExtent));
      if (axis.extent != kDynamic && extent != axis.extent)
        mismatch(tensor, memory,
                 "the kernel is built for that extent: build it for another, or pad",
                 fmt::format("axis {} must be {}", i, axis.extent));
      if (!axis.dim.empty()) infer(tensor, memory, i);
    }
  }

  // The first tensor that has a dim decides its value, the others must agree.
  void infer(const TensorInfo& tensor, const Memory& memory, size_t i) {
    const std::string& dim = tensor.axes[i].dim;
    int64_t extent = memory.shape[i];
    auto [known, is_new] = bound_.dims.emplace(dim, extent);
    if (is_new) {
      source_[dim] = fmt::format("{} (axis {})", tensor.name, i);
    } else if (known->second != extent) {
      mismatch(tensor, memory, "tensors that agree in " + dim,
               fmt::format("{} is {} in {} but {} in {} (axis {})", dim, known->second,
                           source_[dim], extent, tensor.name, i));
    }
  }

  void bind_dims() {
    for (const auto& [dim, value] : arguments_.dims()) {
      if (value < 0 || value > kMaxExtent)
        fail(fmt::format("{}: expected a dim from 0 to {}, got {}", dim, kMaxExtent, value),
             "sizes are i32");
      auto [known, is_new] = bound_.dims.emplace(dim, value);
      if (!is_new && known->second != value)
        fail(fmt::format("{} is given as {} but {} in {}", dim, value, known->second, source_[dim]),
             "leave it out: the tensors tell it");
    }
    for (const std::string& dim : signature_.dims())
      if (!bound_.dims.count(dim))
        fail(fmt::format("missing dim {}", dim), "give it: no given tensor has it as an extent");
  }

  void bind_params() {
    for (const ParamInfo& param : signature_.params()) {
      const Scalar& value = arguments_.params().at(param.name);
      auto converted = as_param(value, param.dtype);
      if (!converted)
        fail(fmt::format("{}: expected {}, got {} {}", param.name, name(param.dtype),
                         name(value.dtype), describe(value)),
             "a value that the type can hold");
      bound_.params.emplace(param.name, *converted);
    }
  }

  void check_computed(const TensorInfo& tensor, const Memory& memory) const {
    for (size_t i = 0; i < tensor.axes.size(); ++i) {
      const AxisInfo& axis = tensor.axes[i];
      if (!axis.value || !axis.dim.empty()) continue;
      int64_t expected = top_->scalar(axis.value).i;
      if (memory.shape[i] != expected)
        mismatch(tensor, memory, "the extent that the other arguments give it",
                 fmt::format("axis {} must be {} = {}", i, axis.text, expected));
    }
  }

  // What only matters where there are elements.
  void check_layout(const TensorInfo& tensor, const Memory& memory) const {
    if (is_empty(memory)) return;
    if (!memory.data)
      fail(fmt::format("{}: expected {}, got a null address", tensor.name, tensor.text()),
           "memory of the device; only a tensor without elements may have none");
    if (reinterpret_cast<uintptr_t>(memory.data) % size_of(memory.dtype) != 0)
      fail(fmt::format("{}: expected an address that is a multiple of {}, the size of {}, got {}",
                       tensor.name, size_of(memory.dtype), name(memory.dtype), memory.data),
           "pass a copy that begins at such a multiple, as any allocation does");
    if (!memory.shape.empty() && memory.shape.back() > 1 && memory.strides.back() != 1)
      fail(fmt::format("{}: expected stride 1 on the last axis, got strides {}", tensor.name,
                       list(memory.strides)),
           "pass a copy whose last axis is contiguous");
    if (!byte_extent(memory).fits)
      fail(fmt::format("{}: expected strides within the address space, got {} of {}", tensor.name,
                       list(memory.strides), list(memory.shape)),
           "strides count elements, not bytes");
    for (size_t i = 0; i < memory.shape.size() && tensor.written(); ++i)
      if (memory.strides[i] == 0 && memory.shape[i] > 1)
        fail(fmt::format(
                 "{}: expected strides other than 0, as it is written, got 0 on axis {}: its "
                 "elements would overwrite each other",
                 tensor.name, i),
             "only inputs may be broadcast");
  }

  void check_overlap() const {
    for (const TensorInfo& a : signature_.tensors()) {
      if (!a.written() || !given(a)) continue;
      for (const TensorInfo& b : signature_.tensors())
        if (a.name != b.name && given(b) && may_overlap(*given(a), *given(b)))
          fail(fmt::format("{} overlaps {} in memory", a.name, b.name),
               "give what the kernel writes memory of its own");
    }
  }

  // TopLevel refuses grids and extents that are negative or too large for it.
  void check_launches() const {
    const Kernel& kernel = signature_.kernel();
    for (OpId id : kernel.region(kernel.body).ops) {
      const Op& op = kernel.op(id);
      if (op.code == OpCode::Launch) top_->grid(op);
      if (op.code == OpCode::Tensor && op.word("role") == "workspace")
        bytes_of(kernel.type(op.result).dtype, top_->shape(op));
    }
  }

  const Signature& signature_;
  const Arguments& arguments_;
  bool outputs_may_lack_;
  Bindings bound_;
  std::map<std::string, std::string> source_;  // of inferred dims, for messages
  std::optional<TopLevel> top_;
};

}  // namespace

Arguments& Arguments::tensor(const std::string& name, Memory memory) {
  tensors_.insert_or_assign(name, std::move(memory));
  return *this;
}

Arguments& Arguments::dim(const std::string& name, int64_t value) {
  dims_.insert_or_assign(name, value);
  return *this;
}

Arguments& Arguments::param(const std::string& name, Scalar value) {
  params_.insert_or_assign(name, value);
  return *this;
}

Bindings bind(const Signature& signature, const Arguments& arguments) {
  return Binder(signature, arguments, false).take();
}

std::map<std::string, Array> make_outputs(const Signature& signature, const Arguments& arguments) {
  Binder binder(signature, arguments, true);
  std::map<std::string, Array> outputs;
  for (const TensorInfo& tensor : signature.tensors())
    if (tensor.role == Role::Output && !arguments.tensors().count(tensor.name))
      outputs.emplace(tensor.name, Array(tensor.dtype, binder.shape_of(tensor)));
  return outputs;
}

}  // namespace kiln
