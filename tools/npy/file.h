// Whole files, with errors that name them.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace kiln {

// UserError naming the path and the reason if it cannot be opened or read. Pipes are fine.
std::string read_file(const std::string& path);
// Replaces the file by the parts, one after another.
void write_file(const std::string& path, std::initializer_list<std::string_view> parts);

}  // namespace kiln
