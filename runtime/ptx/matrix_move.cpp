// ldmatrix, stmatrix, movmatrix: 8×8 matrices of 16-bit elements. Lane l holds row l/4, columns
// 2·(l%4) and the next; transposed, column l/4 and those rows.
#include "runtime/ptx/access.h"
#include "runtime/ptx/decoder.h"

namespace kiln::ptx {
namespace {

constexpr uint32_t kRowBytes = 16;

using Matrix = uint16_t[8][8];

void need_whole_warp(Warp& warp, uint32_t mask) {
  if (mask != kAllLanes)
    warp.fault(FindingKind::DivergentWarp, "not all 32 lanes of the warp run it",
               "run it with whole warps: no lane may have left before");
}

uint32_t fragment(const Matrix& m, int lane, bool transposed) {
  int r = lane / 4, c = 2 * (lane % 4);
  uint32_t low = transposed ? m[c][r] : m[r][c], high = transposed ? m[c + 1][r] : m[r][c + 1];
  return low | high << 16;
}

void place(Matrix& m, int lane, bool transposed, uint32_t value) {
  int r = lane / 4, c = 2 * (lane % 4);
  (transposed ? m[c][r] : m[r][c]) = static_cast<uint16_t>(value);
  (transposed ? m[c + 1][r] : m[r][c + 1]) = static_cast<uint16_t>(value >> 16);
}

// Who accesses a row is not the lane that names its address, but those that hold it: four
// neighbours, each its own elements (PTX ISA, ldmatrix), or a column of lanes if the matrix is
// transposed.
void note_row(Access access, int row, bool transposed, uint64_t address, std::byte* place,
              const std::byte* value = nullptr) {
  const int step = transposed ? 2 : 4;  // bytes that one lane has
  access.of(static_cast<uint32_t>(step));
  for (int at = 0; at < static_cast<int>(kRowBytes); at += step)
    access.note(transposed ? 2 * at + row / 2 : 4 * row + at / 4,
                address + static_cast<uint64_t>(at), 0, place + at, value ? value + at : nullptr);
}

// The rows' addresses come from lanes 8·j to 8·j + 7 for matrix j.
void count_rows(Warp& warp, const uint64_t* addresses, int matrices) {
  for (int j = 0; j < matrices; ++j)
    count_shared(warp.profile(), addresses, 0xffu << (8 * j), kRowBytes);
}

void ldmatrix(Warp& warp, const Instruction& in, uint32_t mask) {
  need_whole_warp(warp, mask);
  uint64_t addresses[kLanes];
  lane_addresses(warp, in, in.operand[in.count], addresses);
  Access rows(warp, in.space, kRowBytes, Intent::Read);
  for (int j = 0; j < in.count; ++j) {
    Matrix m;
    for (int row = 0; row < 8; ++row) {
      int lane = 8 * j + row;
      std::byte* from = rows.find(lane, addresses[lane]);
      note_row(rows, row, in.a != 0, addresses[lane], from);
      std::memcpy(m[row], from, kRowBytes);
    }
    fill<uint32_t>(warp.at(in.operand[j]), mask,
                   [&](int lane) { return fragment(m, lane, in.a != 0); });
  }
  count_rows(warp, addresses, in.count);
}

void stmatrix(Warp& warp, const Instruction& in, uint32_t mask) {
  need_whole_warp(warp, mask);
  uint64_t addresses[kLanes];
  lane_addresses(warp, in, in.operand[0], addresses);
  Access rows(warp, in.space, kRowBytes, Intent::Write);
  for (int j = 0; j < in.count; ++j) {
    Matrix m;
    const std::byte* from = warp.at(in.operand[j + 1]);
    for (int lane = 0; lane < kLanes; ++lane) place(m, lane, in.a != 0, get<uint32_t>(from, lane));
    for (int row = 0; row < 8; ++row) {
      int lane = 8 * j + row;
      std::byte* to = rows.find(lane, addresses[lane]);
      note_row(rows, row, in.a != 0, addresses[lane], to,
               reinterpret_cast<const std::byte*>(m[row]));
      std::memcpy(to, m[row], kRowBytes);
    }
  }
  count_rows(warp, addresses, in.count);
}

void movmatrix(Warp& warp, const Instruction& in, uint32_t mask) {
  need_whole_warp(warp, mask);
  Matrix m;
  const std::byte* from = warp.at(in.operand[1]);
  for (int lane = 0; lane < kLanes; ++lane) place(m, lane, false, get<uint32_t>(from, lane));
  fill<uint32_t>(warp.at(in.operand[0]), mask, [&](int lane) { return fragment(m, lane, true); });
}

void decode_matrix(Decoder& d, bool loads) {
  if (!d.take("sync") || !d.take("aligned") || !d.take("m8n8")) d.unknown();
  std::string_view count = d.take_one({"x1", "x2", "x4"});
  if (count.empty()) d.unknown();
  d.now.count = static_cast<uint8_t>(count[1] - '0');
  d.now.a = d.take("trans");
  d.now.space = d.space();
  if (d.type() != Type::B16) d.unknown();
  if (d.now.space != Space::Shared && d.now.space != Space::Generic) d.unknown();
  d.now.touches = Touches::Shared;
  d.now.together = true;
  d.expect_operands(2);
  if (loads) {
    d.define_vector(0, Type::B32, d.now.count);
    d.address(1);
  } else {
    d.address(0);
    d.use_vector(1, Type::B32, d.now.count);
  }
  d.now.run = loads ? ldmatrix : stmatrix;
}

void decode_movmatrix(Decoder& d) {
  if (!d.take("sync") || !d.take("aligned") || !d.take("m8n8") || !d.take("trans") ||
      d.type() != Type::B16)
    d.unknown();
  d.expect_operands(2);
  d.define(0, Type::B32);
  d.use(1, Type::B32);
  d.now.together = true;
  d.now.run = movmatrix;
}

constexpr Mnemonic kMnemonics[] = {
    {"ldmatrix", [](Decoder& d) { decode_matrix(d, true); }},
    {"stmatrix", [](Decoder& d) { decode_matrix(d, false); }},
    {"movmatrix", decode_movmatrix},
};

}  // namespace

std::span<const Mnemonic> matrix_mnemonics() {
  return kMnemonics;
}

}  // namespace kiln::ptx
