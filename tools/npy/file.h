// Whole files, with errors that name them.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace kiln {

// UserError naming the path and the reason if it cannot be opened or read. Pipes are fine.
std::string read_file(const std::string& path);

// Replaces the file by the parts, one after another. It is written under another name and renamed,
// so that a failure leaves what was there; what is not a regular file (a pipe) is written directly.
void write_file(const std::string& path, std::initializer_list<std::string_view> parts);

// UserError if write_file would certainly fail: a folder, none to write in, no permission.
void require_writable(const std::string& path);

}  // namespace kiln
