// PTX as text: its tokens, and the tree that the parser makes of them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/ptx/types.h"

namespace kiln::ptx {

struct Token {
  enum class Kind : uint8_t { End, Word, DotWord, Integer, Float32, Float64, String, Punctuation };
  Kind kind = Kind::End;
  std::string_view text;  // a DotWord's without the dot, a String's without the quotes
  uint64_t bits = 0;      // of a number
  int line = 0;
};

// All tokens, an End last. Error at what is no token.
std::vector<Token> tokenize(std::string_view text);

struct SourceLine {
  int file = 0, line = 0;  // of a .loc; 0, 0 before the first
};

// A variable of any space but .reg.
struct Variable {
  Space space = Space::Global;
  std::string name;
  uint64_t bytes = 0;  // 0: dynamic shared memory, or declared elsewhere
  uint64_t alignment = 1;
  uint64_t offset = 0;  // of a parameter
  bool external = false;
  std::vector<uint8_t> initial;  // bytes; the rest is zero
  int line = 0;
};

struct SyntaxOperand {
  enum class Kind : uint8_t {
    Register,  // index
    Special,   // name: "%tid.x"
    Variable,  // index
    Label,     // name, index: the statement it stands before; of a table of them: parts
    Integer,   // bits
    Float32,
    Float64,
    Address,  // parts[0] + offset; of a tensor map: parts[1] are coordinates
    Vector,   // parts, "{a, b}"
    Pair,     // parts, "a|b"
    Sink,     // "_"
  };
  Kind kind = Kind::Sink;
  bool negated = false;  // "!p"
  int index = 0;
  uint64_t bits = 0;
  int64_t offset = 0;
  std::string_view name;
  std::vector<SyntaxOperand> parts;
};

struct Statement {
  int line = 0;
  SourceLine source;
  int guard = -1;  // register
  bool guard_negated = false;
  std::string_view opcode;  // "ld"
  std::string full;         // "ld.shared.b32"
  std::vector<std::string_view> modifiers;
  std::vector<SyntaxOperand> operands;
};

struct Function {
  std::string name;
  bool entry = false;
  int line = 0;
  std::vector<Type> registers;      // by index
  std::vector<std::string> names;   // of them, for reports
  std::vector<Variable> variables;  // that the body names: its own and the module's
  std::vector<Statement> body;
  uint64_t parameter_bytes = 0;
  uint64_t required_threads[3] = {0, 0, 0};  // .reqntid; zeros: none
  uint64_t most_threads = 0;                 // .maxntid's product; 0: none
  uint64_t least_blocks = 1;                 // .minnctapersm
  uint64_t most_registers = 0;               // .maxnreg; 0: none
};

struct SyntaxTree {
  std::deque<std::string> texts;  // what the string_views of the rest point into
  std::vector<Function> functions;
  std::map<int, std::string> files;  // of .file
};

// Parses and resolves names. Error at the first mistake.
SyntaxTree parse_syntax(std::string_view text);

}  // namespace kiln::ptx
