#include "tests/passes/filecheck.h"

#include <llvm/ADT/SmallString.h>
#include <llvm/FileCheck/FileCheck.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/raw_ostream.h>

namespace kiln::testing {
namespace {

void collect(const llvm::SMDiagnostic& diagnostic, void* report) {
  llvm::raw_string_ostream out(*static_cast<std::string*>(report));
  diagnostic.print("FileCheck", out, /*ShowColors=*/false);
}

// Adds the text to the source manager, where FileCheck wants it, any run of blanks as one.
llvm::StringRef add(llvm::FileCheck& check, llvm::SourceMgr& sources, const std::string& text,
                    const char* name) {
  llvm::SmallString<4096> space;
  auto original = llvm::MemoryBuffer::getMemBufferCopy(text, name);
  auto buffer =
      llvm::MemoryBuffer::getMemBufferCopy(check.CanonicalizeFile(*original, space), name);
  llvm::StringRef contents = buffer->getBuffer();
  sources.AddNewSourceBuffer(std::move(buffer), llvm::SMLoc());
  return contents;
}

}  // namespace

bool file_check(const std::string& checks, const std::string& text, std::string& report) {
  llvm::FileCheck check{llvm::FileCheckRequest()};
  check.ValidateCheckPrefixes();  // makes CHECK the prefix
  llvm::SourceMgr sources;
  sources.setDiagHandler(collect, &report);
  if (check.readCheckFile(sources, add(check, sources, checks, "CHECK lines"))) return false;
  return check.checkInput(sources, add(check, sources, text, "output"));
}

}  // namespace kiln::testing
