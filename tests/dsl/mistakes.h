// One user mistake: a tiny program, the sentence that it gets, and the line that the sentence
// names.
#pragma once

#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "dsl/dsl.h"
#include "ir/error.h"

namespace kiln {

// Called on the line before the mistake.
class Mark {
 public:
  void operator()(Loc loc = Loc::here()) { line_ = loc.line + 1; }
  int line() const { return line_; }

 private:
  int line_ = 0;
};

// `program` must throw a UserError that contains `sentence` and says what to try, at the marked
// line of its file.
inline void expect_mistake(const std::string& sentence, const std::function<void(Mark&)>& program,
                           Loc here = Loc::here()) {
  Mark mark;
  INFO("expected: " << sentence);
  try {
    program(mark);
  } catch (const UserError& error) {
    INFO("got: " << error.what());
    CHECK(std::string(error.what()).find(sentence) != std::string::npos);
    CHECK(error.hint() != "");
    CHECK(error.loc().line == mark.line());
    CHECK(std::string(error.loc().file) == here.file);
    return;
  }
  FAIL_CHECK("no error");
}

// The mistake is made inside a kernel, in its launch.
inline void expect_mistake_in_launch(const std::string& sentence,
                                     const std::function<void(Mark&, const Expr& block)>& body,
                                     Loc here = Loc::here()) {
  expect_mistake(
      sentence,
      [&](Mark& mark) {
        trace("kernel", [&] {
          auto [x, y, z] = launch({4});
          body(mark, x);
        });
      },
      here);
}

}  // namespace kiln
