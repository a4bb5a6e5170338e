// wgmma: where elements of a and b lie in shared memory, as rows and columns (PTX ISA, "Shared
// Memory Matrix Layout"), and those of a and d in registers. Whole numbers so small that every
// order of summing is exact, and fractions.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ir/dtype.h"
#include "tests/conformance/table.h"

namespace kiln::conformance {
namespace {

constexpr size_t kThreads = 128, kRows = 64, kDepthBytes = 32;

// An element type: its bits as a number, and the bits of a number.
struct Kind {
  std::string name;
  size_t bytes;
  double (*decode)(uint32_t);
  uint32_t (*encode)(double);
};

template <DType T>
Kind kind16() {
  return {std::string(name(T)), 2,
          [](uint32_t x) { return from_bits16(T, static_cast<uint16_t>(x)); },
          [](double x) { return uint32_t{to_bits16(T, x)}; }};
}
template <DType T>
Kind kind8() {
  return {std::string(name(T)), 1,
          [](uint32_t x) { return from_bits8(T, static_cast<uint8_t>(x)); },
          [](double x) { return uint32_t{to_bits8(T, x)}; }};
}
const Kind kF16 = kind16<F16>(), kBF16 = kind16<BF16>(), kE4M3 = kind8<E4M3>(),
           kE5M2 = kind8<E5M2>();
const Kind kTF32 = {
    "tf32", 4, [](uint32_t x) { return static_cast<double>(as<float>(x)); },
    [](double x) { return static_cast<uint32_t>(bits(static_cast<float>(x))) & 0xffffe000u; }};
const Kind kS8 = {"s8", 1, [](uint32_t x) { return static_cast<double>(static_cast<int8_t>(x)); },
                  [](double x) { return static_cast<uint32_t>(static_cast<int>(x)) & 0xff; }};
const Kind kU8 = {"u8", 1, [](uint32_t x) { return static_cast<double>(static_cast<uint8_t>(x)); },
                  [](double x) { return static_cast<uint32_t>(static_cast<int>(x)) & 0xff; }};

// How an operand of `rows` rows (m or n) and 32 bytes of k lies in shared memory, from a multiple
// of 1024 on.
struct Lie {
  size_t rows, element;  // bytes
  size_t width;          // of the swizzle; 16: none
  bool mn_major = false;
  size_t step = 0;  // along k, of a K-major operand with a swizzle: 32 bytes each

  size_t depth() const { return kDepthBytes / element; }
  // Distances between cores or atoms, with gaps where the layout allows them.
  size_t leading() const {
    if (width == 16) return mn_major ? 256 : 128;
    return mn_major ? 16 * width : 16;
  }
  size_t stride() const {
    if (width == 16) return mn_major ? 128 + (depth() > 8 ? 384 : 0) : 384;
    return 8 * width;
  }
  size_t code() const { return width == 16 ? 0 : width == 128 ? 1 : width == 64 ? 2 : 3; }
  // An atom of a swizzle: the 16 bytes `chunk` of line `line` change places with others.
  size_t swizzled(size_t line, size_t byte) const {
    const size_t lines = 128 / width;  // that share a row of banks
    const size_t phase = width == 16 ? 0 : line / lines % (width / 16);
    return line * width + (byte / 16 ^ phase) * 16 + byte % 16;
  }
  size_t at(size_t mn, size_t k) const {
    const size_t byte = (mn_major ? mn : k) * element;
    if (width == 16)
      return mn_major ? byte / 16 * stride() + k / 8 * leading() + k % 8 * 16 + byte % 16
                      : mn / 8 * stride() + byte / 16 * leading() + mn % 8 * 16 + byte % 16;
    if (!mn_major) return mn / 8 * stride() + swizzled(mn % 8, byte + step * kDepthBytes);
    return byte / width * leading() + k / 8 * stride() + swizzled(k % 8, byte % width);
  }
  size_t bytes() const {
    size_t end = 0;
    for (size_t mn = 0; mn < rows; ++mn)
      for (size_t k = 0; k < depth(); ++k) end = std::max(end, at(mn, k) + element);
    return (end + 1023) / 1024 * 1024;
  }
  uint64_t descriptor() const {  // of an image at 0
    return step * kDepthBytes / 16 | leading() / 16 << 16 | uint64_t{stride() / 16} << 32 |
           uint64_t{code()} << 62;
  }
};

struct Case {
  const Kind *a, *b;
  std::string d;  // f32, f16, s32
  size_t n;
  Lie of_a, of_b;
  bool registers = false, adds = true, fractions = false;
  int sign_a = 1, sign_b = 1;
  size_t depth() const { return kDepthBytes / a->bytes; }
};

uint64_t image_word(const std::vector<uint8_t>& image, size_t i) {
  uint64_t word;
  std::memcpy(&word, &image[8 * i], 8);
  return word;
}

// What all threads get: the images of a and b, then 4 registers of a for each thread and the
// accumulators' registers, as words of 32 bits.
class Problem {
 public:
  Problem(const Case& test, uint64_t seed) : test_(test), random_(seed) {
    a_.resize(kRows * test.depth());
    b_.resize(test.n * test.depth());
    c_.resize(kRows * test.n);
    for (auto* each : {&a_, &b_})
      for (double& x : *each) x = number(each == &a_ ? *test.a : *test.b);
    for (double& x : c_) x = static_cast<double>(random_() % 65) - 32;
  }

  std::vector<uint64_t> input() const {
    std::vector<uint64_t> words;
    add_image(words, test_.of_a, *test_.a, a_);
    add_image(words, test_.of_b, *test_.b, b_);
    for (size_t t = 0; t < kThreads; ++t)
      for (size_t q = 0; q < 4; ++q) words.push_back(fragment_a(t, q));
    for (size_t t = 0; t < kThreads; ++t)
      for (size_t i = 0; i < registers_of_d(); ++i) words.push_back(word_of_d(c_, t, i));
    return words;
  }

  std::vector<uint64_t> expected() const {
    std::vector<double> d = test_.adds ? c_ : std::vector<double>(c_.size());
    const size_t depth = test_.depth();
    for (size_t m = 0; m < kRows; ++m)
      for (size_t n = 0; n < test_.n; ++n)
        for (size_t k = 0; k < depth; ++k)
          d[m * test_.n + n] += test_.sign_a * a_[m * depth + k] * test_.sign_b * b_[n * depth + k];
    std::vector<uint64_t> words;
    for (size_t t = 0; t < kThreads; ++t)
      for (size_t i = 0; i < registers_of_d(); ++i) words.push_back(word_of_d(d, t, i));
    return words;
  }

  size_t registers_of_d() const { return test_.d == "f16" ? test_.n / 4 : test_.n / 2; }

 private:
  double number(const Kind& kind) {
    const bool is_unsigned = kind.name == "u8";
    if (kind.name == "s8" || is_unsigned)
      return static_cast<double>(random_() % 256) - (is_unsigned ? 0 : 128);
    double x = static_cast<double>(random_() % 9) - 4;
    if (test_.fractions) x = static_cast<double>(static_cast<int64_t>(random_())) * 0x1p-63;
    return kind.decode(kind.encode(x));
  }
  static void add_image(std::vector<uint64_t>& words, const Lie& lie, const Kind& kind,
                        const std::vector<double>& values) {
    std::vector<uint8_t> image(lie.bytes(), 0xff);
    for (size_t mn = 0; mn < lie.rows; ++mn)
      for (size_t k = 0; k < lie.depth(); ++k) {
        const uint32_t element = kind.encode(values[mn * lie.depth() + k]);
        std::memcpy(&image[lie.at(mn, k)], &element, lie.element);
      }
    for (size_t i = 0; i < image.size() / 8; ++i) words.push_back(image_word(image, i));
  }
  // Register q of a: consecutive k of row t/4 of the warp's 16, or that + 8.
  uint64_t fragment_a(size_t t, size_t q) const {
    const size_t count = 4 / test_.a->bytes, row = t / 32 * 16 + t % 32 / 4 + q % 2 * 8;
    uint64_t word = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t k = count * (q / 2 * 4 + t % 4) + i;
      word |= uint64_t{test_.a->encode(a_[row * test_.depth() + k])} << (8 * test_.a->bytes * i);
    }
    return word;
  }
  uint64_t word_of_d(const std::vector<double>& d, size_t t, size_t i) const {
    const auto element = [&](size_t j) {
      const size_t row = t / 32 * 16 + t % 32 / 4 + j / 2 % 2 * 8;
      return d[row * test_.n + j / 4 * 8 + t % 4 * 2 + j % 2];
    };
    if (test_.d == "f16")
      return kF16.encode(element(2 * i)) | kF16.encode(element(2 * i + 1)) << 16;
    if (test_.d == "f32") return bits(static_cast<float>(element(i)));
    return static_cast<uint32_t>(static_cast<int64_t>(element(i)));
  }

  const Case& test_;
  std::mt19937_64 random_;
  std::vector<double> a_, b_, c_;  // as rows
};

std::string list(size_t count, const char* name, size_t first = 0) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += fmt::format("{}%{}{}", i ? ", " : "", name, first + i);
  return text;
}

std::string instruction_of(const Case& test) {
  return fmt::format("wgmma.mma_async.sync.aligned.m64n{}k{}.{}.{}.{}", test.n, test.depth(),
                     test.d, test.a->name, test.b->name);
}

std::string text_of(const Case& test, const std::string& entry, size_t count) {
  const size_t bytes_a = test.of_a.bytes(), bytes = bytes_a + test.of_b.bytes();
  std::string text = fmt::format(
      ".visible .entry {}(.param .u64 p0, .param .u64 p1)\n.reqntid 128\n{{\n"
      ".shared .align 1024 .b8 image[{}];\n"
      ".reg .pred %p<2>; .reg .b32 %r<8>; .reg .b32 %a<4>; .reg .b32 %d<{}>; .reg .b64 %l<16>;\n"
      "mov.u32 %r0, %tid.x; ld.param.u64 %l0, [p0]; ld.param.u64 %l1, [p1];\n"
      "mad.wide.u32 %l2, %r0, 16, %l0; mov.u32 %r1, image; mad.lo.u32 %r2, %r0, 16, %r1;\n",
      entry, bytes, count);
  for (size_t at = 0; at < bytes; at += 16 * kThreads) {
    const bool part = bytes - at < 16 * kThreads;
    if (part) text += fmt::format("setp.lt.u32 %p1, %r0, {};\n", (bytes - at) / 16);
    const char* guard = part ? "@%p1 " : "";
    text += fmt::format(
        "{0}ld.global.v2.b64 {{%l4, %l5}}, [%l2+{1}];\n"
        "{0}st.shared.v2.b64 [%r2+{1}], {{%l4, %l5}};\n",
        guard, at);
  }
  text +=
      fmt::format("mad.wide.u32 %l3, %r0, 32, %l0;\nmad.wide.u32 %l6, %r0, {}, %l0;\n", 8 * count);
  for (size_t q = 0; q < 4; ++q)
    text += fmt::format("ld.global.b32 %a{}, [%l3+{}];\n", q, bytes + 8 * q);
  for (size_t i = 0; i < count; ++i)
    text += fmt::format("ld.global.b32 %d{}, [%l6+{}];\n", i, bytes + 32 * kThreads + 8 * i);
  text += fmt::format(
      "fence.proxy.async; bar.sync 0;\n"
      "and.b32 %r3, %r1, 0x3ffff; shr.u32 %r3, %r3, 4; cvt.u64.u32 %l7, %r3;\n"
      "add.u64 %l8, %l7, {}; add.u64 %l9, %l7, {}; mov.u32 %r4, {}; setp.ne.u32 %p0, %r4, 0;\n",
      test.of_a.descriptor(), test.of_b.descriptor() + bytes_a / 16, int{test.adds});
  const bool integers = test.d == "s32";
  std::string rest = integers ? "" : fmt::format(", {}, {}", test.sign_a, test.sign_b);
  if (test.a->bytes == 2)
    rest += fmt::format("{}, {}",
                        test.registers       ? ""
                        : test.of_a.mn_major ? ", 1"
                                             : ", 0",
                        int{test.of_b.mn_major});
  text += fmt::format(
      "wgmma.fence.sync.aligned;\n{} {{{}}}, {}, %l9, %p0{};\n"
      "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n",
      instruction_of(test), list(count, "d"),
      test.registers ? fmt::format("{{{}}}", list(4, "a")) : "%l8", rest);
  text += fmt::format("mad.wide.u32 %l1, %r0, {}, %l1; mov.u64 %l4, 0;\n", 8 * count);
  for (size_t i = 0; i < count; ++i)
    text += fmt::format("cvt.u64.u32 %l4, %d{}; st.global.b64 [%l1+{}], %l4;\n", i, 8 * i);
  return text + "ret;\n}\n";
}

void add(Table& table, const Case& test) {
  Snippet snippet;
  snippet.name = fmt::format(
      "{}, a {}{}, b of {}{}{}{}", instruction_of(test),
      test.registers ? std::string("in registers") : fmt::format("of {}", test.of_a.width),
      test.of_a.mn_major ? " transposed" : "", test.of_b.width,
      test.of_b.mn_major ? " transposed" : "", test.adds ? "" : ", not added",
      test.fractions ? ", fractions" : "");
  snippet.entry = table.next_entry();
  snippet.target = 90;
  snippet.architecture_only = true;
  snippet.threads = static_cast<int>(kThreads);
  const Problem problem(test, table.size() + 1);
  snippet.text = text_of(test, snippet.entry, problem.registers_of_d());
  snippet.input = problem.input();
  snippet.expected = problem.expected();
  if (test.fractions) {  // truncated where they are aligned; documented error
    snippet.element = test.d == "f16" ? Element::F16x2 : Element::F32;
    snippet.tolerance = {test.d == "f16" ? 0x1p-9 : 0x1p-12, test.d == "f16" ? 0x1p-6 : 0x1p-9};
  }
  table.add(std::move(snippet));
}

constexpr size_t kWidths[] = {16, 32, 64, 128};

}  // namespace

void add_wgmma(Table& table) {
  constexpr size_t kColumns[] = {8, 128, 24, 64, 256, 16, 96, 176, 40, 80};
  size_t next = 0;
  const auto columns = [&](bool integers) {
    for (;;) {
      const size_t n = kColumns[next++ % std::size(kColumns)];
      if (!integers || n <= 32 || n % 16 == 0) return n;
    }
  };
  // A swizzled operand whose rows are m or n comes in whole rows of the swizzle.
  const auto whole = [](size_t n, size_t width) {
    const size_t unit = std::max<size_t>(width / 2, 8);
    return std::max(unit, n / unit * unit);
  };
  struct Sixteen {
    const Kind* kind;
    const char* d;
  };
  for (const Sixteen& type : {Sixteen{&kF16, "f32"}, {&kF16, "f16"}, {&kBF16, "f32"}})
    for (size_t width : kWidths)
      for (int form = 0; form < 6; ++form) {  // majors of a and b; or a in registers
        const bool registers = form >= 4, b_mn = form & 1, a_mn = !registers && (form & 2);
        const size_t n = b_mn && width > 16 ? whole(columns(false), width) : columns(false);
        const size_t step = width / kDepthBytes > 1 ? next % (width / kDepthBytes) : 0;
        Case test{type.kind,
                  type.kind,
                  type.d,
                  n,
                  {kRows, 2, width, a_mn, a_mn ? 0 : step},
                  {n, 2, width, b_mn, b_mn ? 0 : step}};
        test.registers = registers;
        test.adds = next % 3 != 0;
        test.fractions = next % 4 == 0;
        if (next % 5 == 0) test.sign_a = -1;
        if (next % 7 == 0) test.sign_b = -1;
        add(table, test);
      }
  struct Other {
    const Kind *a, *b;
    const char* d;
  };
  const Other others[] = {{&kTF32, &kTF32, "f32"}, {&kE4M3, &kE4M3, "f32"}, {&kE4M3, &kE5M2, "f32"},
                          {&kE5M2, &kE4M3, "f16"}, {&kE5M2, &kE5M2, "f32"}, {&kE4M3, &kE4M3, "f16"},
                          {&kS8, &kS8, "s32"},     {&kS8, &kU8, "s32"},     {&kU8, &kS8, "s32"},
                          {&kU8, &kU8, "s32"}};
  for (const Other& type : others)
    for (size_t width : kWidths)
      for (bool registers : {false, true}) {
        const size_t n = columns(type.a->name.back() == '8');
        const size_t step = width / kDepthBytes > 1 ? next % (width / kDepthBytes) : 0;
        Case test{type.a,
                  type.b,
                  type.d,
                  n,
                  {kRows, type.a->bytes, width, false, step},
                  {n, type.b->bytes, width, false, step}};
        test.registers = registers;
        test.adds = next % 3 != 0;
        add(table, test);
      }
}

}  // namespace kiln::conformance
