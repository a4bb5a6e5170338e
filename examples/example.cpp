#include "examples/example.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

using namespace kiln;

namespace examples {
namespace {

constexpr size_t kBefore = 1024;  // bytes in front of the first element
constexpr std::byte kPoison{0xFF};

}  // namespace

Data::Data(Device& device, DType dtype, Shape shape, int64_t beyond) : device_(device) {
  Shape box = shape;
  for (int64_t& extent : box) extent += beyond;
  memory_ = Memory::contiguous(nullptr, dtype, box);
  memory_.shape = shape;
  box_.assign(2 * kBefore + bytes_of(dtype, box), kPoison);
  values_.resize(static_cast<size_t>(count(shape)));
  allocation_ = device.allocate(box_.size());
  device.upload(allocation_, box_.data(), box_.size());
  memory_.data = static_cast<std::byte*>(allocation_) + kBefore;
}

Data::Data(Data&& other) noexcept
    : device_(other.device_),
      memory_(other.memory_),
      allocation_(std::exchange(other.allocation_, nullptr)),
      box_(std::move(other.box_)),
      values_(std::move(other.values_)) {}

Data::~Data() {
  if (allocation_) device_.release(allocation_);
}

double Data::operator()(std::initializer_list<int64_t> index) const {
  int64_t at = 0;
  size_t axis = 0;
  for (int64_t i : index) at = at * shape()[axis++] + i;
  return values_.at(static_cast<size_t>(at));
}

std::vector<size_t> Data::offsets() const {
  std::vector<size_t> offsets(values_.size());
  for (size_t number = 0; number < offsets.size(); ++number) {
    int64_t rest = static_cast<int64_t>(number), offset = 0;
    for (size_t axis = shape().size(); axis-- > 0; rest /= shape()[axis])
      offset += rest % shape()[axis] * memory_.strides[axis];
    offsets[number] = kBefore + static_cast<size_t>(offset) * size_of(memory_.dtype);
  }
  return offsets;
}

void Data::set(const std::vector<double>& values) {
  const std::vector<size_t> places = offsets();
  for (size_t i = 0; i < places.size(); ++i) {
    Scalar rounded = convert(Scalar::of_float(F64, values.at(i)), memory_.dtype);
    store_element(rounded, &box_[places[i]]);
    values_[i] = convert(rounded, F64).f;
  }
  device_.upload(allocation_, box_.data(), box_.size());
}

bool Data::fetch() {
  device_.synchronize();
  device_.download(box_.data(), allocation_, box_.size());
  std::vector<std::byte> beyond = box_;
  const std::vector<size_t> places = offsets();
  for (size_t i = 0; i < places.size(); ++i) {
    values_[i] = convert(load_element(memory_.dtype, &box_[places[i]]), F64).f;
    std::memset(&beyond[places[i]], static_cast<int>(kPoison), size_of(memory_.dtype));
  }
  for (std::byte byte : beyond)
    if (byte != kPoison) return false;
  return true;
}

Example::Example(std::string name, int argc, char** argv) : name_(std::move(name)) {
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (!word.starts_with("--")) throw UserError(name_ + ": expected --option, got '" + word + "'");
    const bool has_value = i + 1 < argc && !std::string(argv[i + 1]).starts_with("--");
    given_[word.substr(2)] = has_value ? argv[++i] : "";
  }
  device_ = &device(take("device", "host"));
  random_.seed(static_cast<uint64_t>(number("seed", 1)));
  beyond_ = number("beyond", 16);
}

std::string Example::take(const std::string& option, const std::string& otherwise) {
  asked_ += " --" + option;
  auto found = given_.extract(option);
  return found ? found.mapped() : otherwise;
}

int64_t Example::number(const std::string& option, int64_t otherwise) {
  const std::string text = take(option, std::to_string(otherwise));
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos)
    throw UserError(name_ + ": --" + option + ": expected a number of 0 or more, got '" + text +
                    "'");
  return std::stoll(text);
}

DType Example::dtype(const std::vector<DType>& legal) {
  const std::string text = take("dtype", std::string(name(legal.front())));
  std::string names;
  for (DType dtype : legal) {
    if (text == name(dtype)) return dtype;
    names.append(" ").append(name(dtype));
  }
  throw UserError(name_ + ": --dtype: expected one of" + names + ", got '" + text + "'");
}

bool Example::flag(const std::string& option) {
  return take(option, "absent") != "absent";
}

double Example::uniform(double low, double high) {
  return std::uniform_real_distribution<>(low, high)(random_);
}

Data Example::random(DType dtype, Shape shape, double low, double high) {
  Data data = tensor(dtype, shape);
  std::vector<double> values(data.values().size());
  for (double& value : values) {
    value = uniform(low, high);
    if (dtype == Bool) value = value < (low + high) / 2;
  }
  data.set(values);
  return data;
}

Data Example::tensor(DType dtype, Shape shape) {
  return Data(*device_, dtype, std::move(shape), beyond_);
}

void Example::run(const Kernel& kernel, const Arguments& arguments) {
  if (!given_.empty())
    throw UserError(name_ + ": no option --" + given_.begin()->first, "options:" + asked_);
  kiln::run(*device_, kernel, arguments);
}

void Example::check(Data& result, const std::vector<double>& reference, double tolerance) {
  const bool beyond_unchanged = result.fetch();
  if (!beyond_unchanged) std::fprintf(stderr, "%s: written beyond an end\n", name_.c_str());
  wrong_ += !beyond_unchanged;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double x = result.values().at(i), r = reference[i];
    const bool same = x == r || (std::isnan(x) && std::isnan(r));
    const bool close = std::isfinite(r) && std::abs(x - r) <= tolerance * (1 + std::abs(r));
    if (!same && !close && wrong_++ < 5)
      std::fprintf(stderr, "%s: element %zu: expected %.9g, got %.9g\n", name_.c_str(), i, r, x);
  }
  elements_ += static_cast<int64_t>(reference.size());
}

int Example::finish() const {
  const std::string device(device_->name());
  std::printf("%s on %s: %lld elements, %lld wrong\n", name_.c_str(), device.c_str(),
              static_cast<long long>(elements_), static_cast<long long>(wrong_));
  return wrong_ != 0;
}

double tolerance(DType dtype) {
  switch (dtype) {
    case F64: return 1e-12;
    case F32: return 1e-5;
    case F16: return 2e-3;
    case BF16: return 1.6e-2;
    default: return 0;
  }
}

}  // namespace examples
