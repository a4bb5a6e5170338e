// Errors, named for who must act. Each says what was expected, what came, where, and what to try.
#pragma once

#include <stdexcept>
#include <string>

#include "ir/loc.h"

namespace kiln {

// Base of all Kiln errors. what() is "file:line: error: message\n  try: hint" with the parts that
// are known.
class Error : public std::runtime_error {
 public:
  const Loc& loc() const { return loc_; }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }

 protected:
  Error(const char* kind, Loc loc, std::string message, std::string hint);

 private:
  Loc loc_;
  std::string message_;
  std::string hint_;
};

// The caller's program or input is wrong.
class UserError : public Error {
 public:
  UserError(Loc loc, std::string message, std::string hint = "")
      : Error("error", loc, std::move(message), std::move(hint)) {}
  explicit UserError(std::string message, std::string hint = "")
      : UserError(Loc{}, std::move(message), std::move(hint)) {}
};

// The machine said no: out of memory, no such device, a driver failure.
class DeviceError : public Error {
 public:
  explicit DeviceError(std::string message, std::string hint = "")
      : Error("device error", Loc{}, std::move(message), std::move(hint)) {}
};

// A defect of Kiln itself.
class InternalError : public Error {
 public:
  InternalError(Loc loc, std::string message)
      : Error("internal error", loc, std::move(message), "please report this program") {}
  explicit InternalError(std::string message) : InternalError(Loc{}, std::move(message)) {}
};

}  // namespace kiln
