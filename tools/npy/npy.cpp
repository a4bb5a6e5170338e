#include "tools/npy/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ir/error.h"
#include "tools/npy/file.h"
#include "tools/npy/header.h"

namespace kiln {
namespace {

// Elements of a column-major source in row-major order: the index runs row-major while the source
// position follows by its strides.
void reorder(const char* source, char* destination, size_t width, const Shape& shape) {
  Shape strides(shape.size(), 1), index(shape.size(), 0);
  for (size_t axis = 1; axis < shape.size(); ++axis)
    strides[axis] = strides[axis - 1] * shape[axis - 1];
  int64_t position = 0;
  for (int64_t i = 0, size = count(shape); i < size; ++i) {
    std::memcpy(destination + i * width, source + position * width, width);
    for (size_t axis = shape.size(); axis-- > 0;) {
      position += strides[axis];
      if (++index[axis] < shape[axis]) break;
      position -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
}

}  // namespace

Array parse_npy(std::string_view bytes, const std::string& name) {
  NpyHeader header = parse_npy_header(bytes, name);
  std::string_view data = bytes.substr(header.data_offset);
  size_t width = size_of(header.dtype);
  size_t expected = static_cast<size_t>(count(header.shape)) * width;
  if (data.size() != expected)
    throw UserError(fmt::format("{}: {}: shape {} of {} needs {} bytes of data, the file has {}",
                                name, data.size() < expected ? "truncated" : "trailing bytes",
                                str(header.shape), kiln::name(header.dtype), expected, data.size()),
                    "write the file again with numpy.save");
  Array array(header.dtype, header.shape);
  if (expected == 0) return array;
  char* elements = static_cast<char*>(array.data());
  if (header.fortran_order && header.shape.size() > 1)
    reorder(data.data(), elements, width, header.shape);
  else
    std::memcpy(elements, data.data(), expected);
  if (header.big_endian)
    for (size_t at = 0; at < expected; at += width)
      std::reverse(elements + at, elements + at + width);
  if (header.dtype == Bool)  // views of other arrays may hold any non-zero byte
    for (char& value : array.span<char>()) value = value != 0;
  return array;
}

Array read_npy(const std::string& path) {
  return parse_npy(read_file(path), path);
}

std::string npy_bytes(const Array& array) {
  std::string bytes = format_npy_header(array.dtype(), array.shape());
  bytes.append(static_cast<const char*>(array.data()), array.bytes());
  return bytes;
}

void write_npy(const std::string& path, const Array& array) {
  write_file(path, {format_npy_header(array.dtype(), array.shape()),
                    {static_cast<const char*>(array.data()), array.bytes()}});
}

}  // namespace kiln
