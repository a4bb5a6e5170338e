// The kernels of tests/files/late with small tiles: the same protocol, cheap enough to interpret
// in many orders.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ir/walk.h"
#include "tests/support/late_file.h"

namespace kiln::test {

using Sizes = std::map<int64_t, int64_t>;  // what each number of a kernel becomes

// Replaces the kernel's integers. A number that `sizes` does not have, or one of its that the
// kernel does not have, fails the test: the file has changed.
class Shrinking {
 public:
  Shrinking(Kernel kernel, const std::string& file, const Sizes& sizes)
      : sizes_(sizes), kernel_(std::move(kernel)) {
    INFO(file);
    kernel_.target.clear();
    walk(kernel_, kernel_.body, [&](OpId id) { change(kernel_.op(id)); });
    kernel_ = parse(with_small_types(print(kernel_)), "small " + file);
    for (const auto& [number, small] : sizes_) {
      INFO("the kernel has no " << number << " any more");
      REQUIRE(met_.contains(number));
    }
    verify(kernel_);
  }
  const Kernel& kernel() const { return kernel_; }

 private:
  int64_t small(int64_t number) {
    INFO("what does " << number << " become?");
    REQUIRE(sizes_.contains(number));
    met_.insert(number);
    return sizes_.at(number);
  }

  // What was decided for the real sizes goes.
  void change(Op& op) {
    for (const char* place : {"layout", "offset", "control", "shared"}) op.attrs.erase(place);
    if (op.code == OpCode::Launch) op.attrs.erase("warps");
    if (op.code == OpCode::Parallel) {
      Shape extents = op.ints("extents");
      for (int64_t& extent : extents) extent = small(extent);
      op.attrs.set("extents", extents);
    }
    if (op.code == OpCode::Const && kernel_.type(op.result).dtype == I32)
      op.attrs.set("value", small(constant_value(kernel_, op).i));
  }

  // A bracket right after a word opens the extents of a type.
  std::string with_small_types(const std::string& text) {
    static const std::regex extents(R"(\w\[[^\]]*\])"), number(R"(\d+)");
    return replaced(text, extents, [&](const std::string& type) {
      return type[0] + replaced(type.substr(1), number, [&](const std::string& digits) {
               return std::to_string(small(std::stoll(digits)));
             });
    });
  }
  template <class Change>
  static std::string replaced(const std::string& text, const std::regex& what, Change&& change) {
    std::string result;
    auto from = text.begin();
    for (std::sregex_iterator at(text.begin(), text.end(), what), end; at != end; ++at) {
      result.append(from, (*at)[0].first).append(change(at->str()));
      from = (*at)[0].second;
    }
    return result.append(from, text.end());
  }

  const Sizes& sizes_;
  Kernel kernel_;
  std::set<int64_t> met_;
};

inline Kernel small_late_kernel(const std::string& tests, const std::string& file,
                                const Sizes& sizes) {
  return Shrinking(testing::late_kernel(tests, file), file, sizes).kernel();
}

// Of its largest ring.
inline int64_t slots_of(const Kernel& kernel) {
  int64_t slots = 0;
  walk(kernel, kernel.body, [&](OpId id) {
    const Op& op = kernel.op(id);
    if (op.code == OpCode::Channel) slots = std::max(slots, op.integer("slots"));
  });
  return slots;
}

}  // namespace kiln::test
